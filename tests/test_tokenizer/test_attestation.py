"""Attestations: what is attested holds, and what does not is named."""

import json

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.test_tokenizer.conftest import TRAINING_TEXTS
from tokmill import tokenizer
from tokmill.tokenizer import Tokenizer, TokenizerError, attestation
from tokmill.tokenizer.closed_vocabulary.family import closed_family
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.splitting import Pretokens


def attested(tok: Tokenizer) -> dict:
    """An attestation that has been through JSON."""
    return json.loads(json.dumps(attestation.make(tok)))


def bytes_of(data: NDArray[np.uint8], pretokens: Pretokens) -> Pretokens:
    """Cut pre-tokens, which lie side by side, into bytes."""
    del data  # its bytes do not matter
    starts = np.concatenate([np.arange(0), *map(np.arange, pretokens.starts, pretokens.ends)])
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(pretokens.ends - pretokens.starts)])
    return Pretokens(starts, starts + 1, ends[pretokens.offsets])


def test_a_model_may_know_one_byte_of_a_character_and_not_the_next() -> None:
    family = closed_family("bytes", "Bytes", "byte", bytes_of, {})
    vocabulary = Vocabulary.build({1: b"\xc3", 2: b"a"}, {"[UNK]": 0}, 0)
    model = family.from_spec(vocabulary, {"unknown_token": "[UNK]"})
    tok = Tokenizer(Definition.compose(model, split_pattern="gpt2"))

    assert tok.decode_bytes(tok.encode("äa")) == b"\xc3[UNK]a"
    attestation.check(tok, attested(tok))


@pytest.mark.parametrize("normalizer", [None, "nfkc+lowercase"])
def test_a_tokenizer_does_what_it_did(normalizer: str | None) -> None:
    tok = tokenizer.train(
        TRAINING_TEXTS, vocab_size=320, special_tokens=["<S>"], num_reserved=1, normalizer=normalizer
    )
    attestation.check(Tokenizer.from_spec(tok.spec()), attested(tok))


def test_only_tables_that_the_ids_depend_on_are_named() -> None:
    plain = tokenizer.train(TRAINING_TEXTS, vocab_size=300)
    normalized = tokenizer.train(TRAINING_TEXTS, vocab_size=300, normalizer="nfc")
    assert list(attested(plain)["unicode"]) == ["split", "tables"]
    assert list(attested(normalized)["unicode"]) == ["split", "tables", "normalizer"]


def test_the_first_probe_that_differs_is_named(small: Tokenizer) -> None:
    made = attested(small)
    names = [probe["name"] for probe in made["probes"]]
    changed = names.index("german")
    made["probes"][changed]["ids"][2] += 1
    made["probes"][changed + 1]["ids"] = []
    with pytest.raises(TokenizerError, match=r"probe 'german': id 2 of"):
        attestation.check(small, made)


def test_special_tokens_are_attested_as_tokens_and_as_text(small: Tokenizer) -> None:
    probes = {probe["name"]: probe["ids"] for probe in attested(small)["probes"]}
    special = small.special_tokens["<|end|>"]
    assert probes["special <|end|>"].count(special) == 3
    assert special not in probes["special <|end|> as text"]


def test_another_tokenizer_is_told_apart(small: Tokenizer) -> None:
    with pytest.raises(TokenizerError, match=f"{small.vocab_size - 1} was attested"):
        attestation.check(small, attested(small) | {"vocab_size": small.vocab_size - 1})
    with pytest.raises(TokenizerError, match="version=99"):
        attestation.check(small, {"version": 99})
