"""Attestations: what is attested holds, and what does not is named."""

import json

import pytest

from tests.test_tokenizer.conftest import TRAINING_TEXTS
from tokmill import tokenizer
from tokmill.tokenizer import Tokenizer, TokenizerError, attestation


def attested(tok: Tokenizer) -> dict:
    """An attestation that has been through JSON."""
    return json.loads(json.dumps(attestation.make(tok)))


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
