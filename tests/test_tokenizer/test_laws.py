"""The laws that every encoding is held to, and attestations: what breaks them is found, and named."""

import json
import pickle

import numpy as np
import pytest

from tests.test_tokenizer.conftest import TRAINING_TEXTS
from tokmill import tokenizer
from tokmill.tokenizer import (
    LawError,
    Tokenizer,
    TokenizerError,
    attestation,
)
from tokmill.tokenizer.pipeline.encoder import Accounting

LAW = Accounting(np.cumsum([0, 1, 1, 2, 3, 0]))
UNKNOWN = Accounting(np.array([0, 5, 6, 8]), 0)  # [UNK] of five bytes, a token of one, and a token of two


def breach(
    ids: list[int], ends: list[int], bounds: list[int], unknown: list[int] | None = None
) -> tuple[int, str] | None:
    law, lost = (LAW, None) if unknown is None else (UNKNOWN, np.array(unknown))
    return law.breach(np.array(ids, np.uint32), np.array(ends, np.int64), np.array(bounds, np.int64), lost)


def test_what_tiles_its_text_keeps_the_law():
    assert breach([0, 2, 3, 3], [0, 2, 2, 4], [5, 8, 8, 14]) is None
    assert breach([], [0], [3]) is None
    assert breach([], [0, 0], [3, 3]) is None
    assert breach([1, 1, 0], [0, 2, 3], [3, 5, 10], [0, 5]) is None


@pytest.mark.parametrize(
    ("encoding", "segment", "says"),
    [
        (([0, 2], [0, 1, 2], [0, 1, 4]), 1, "its 1 tokens have 2 bytes and its unknown text 0, but"),
        (([0, 2], [0, 1, 2], [0, 2, 4]), 0, "its 1 tokens have 1 bytes"),
        (([0, 4], [0, 2], [0, 2]), 0, "its 2 tokens have 1 bytes"),
        (([0, 5], [0, 2], [0, 2]), 0, "it has the id 5, but ids are below 5"),
        (([8, 0], [0, 1, 2], [0, 1, 2]), 0, "it has the id 8"),
        (([0, 3_432_318_984], [0, 2], [0, 1]), 0, "it has the id 3432318984"),
        (([0, 1], [0, 2, 1], [0, 2, 2]), 1, "its ids go from 2 to 1 of 2"),
        (([0, 1], [-1, 2], [0, 2]), 0, "its ids go from -1 to 2 of 2"),
        (([0, 1], [0, 3], [0, 2]), 0, "its ids go from 0 to 3 of 2"),
        (([0, 1], [0, 1], [0, 1]), 0, "ids that belong nowhere"),
        (([1, 1, 0], [0, 2, 3], [3, 5, 10], [0, 4]), 1, ""),
        (([1, 2, 0], [0, 2, 3], [3, 5, 10], [0, 5]), 0, ""),
        (([1, 1, 9], [0, 2, 3], [3, 5, 10], [0, 5]), 1, ""),
        (([1, 1, 0], [0, 2, 2], [3, 5, 10], [0, 5]), 1, ""),
        (([1, 1, 0], [0, 2, 3], [3, 5, 10], [2, 3]), 0, ""),
        (([2, 2, 0], [0, 2, 3], [3, 5, 10], [-2, 5]), 0, ""),
    ],
)
def test_what_breaks_the_law_is_found(encoding, segment, says):
    found = breach(*encoding)
    assert found is not None
    assert found[0] == segment
    assert says in found[1]


def damaged(texts: list[str], **how: object) -> Tokenizer:
    """A tokenizer whose memory of what it has encoded is damaged, as faulty memory would."""
    tok = tokenizer.train(["abc"], vocab_size=257, special_tokens=[], **how)
    tok.encode_batch(texts)
    with tok._encoder._encoder.workspace() as workspace:
        workspace.memory.cache.aside[:] = 400
    return tok


ASIDE = "qzxjkvqz"  # eight ids, which stand aside


@pytest.mark.parametrize("number", [0, 2])
def test_ids_that_cannot_be_right_are_not_given_out(number):
    texts = ["", "abc abc", "a", "b"]
    texts.insert(number, ASIDE)
    tok = damaged([ASIDE])
    with pytest.raises(
        LawError, match=f"document {number} was encoded wrongly: .* id 400, but ids are below"
    ):
        tok.encode_batch(texts)
    for call in (tok.encode, tok.count_tokens, tok.encode_with_offsets):
        with pytest.raises(LawError, match="document 0"):
            call(ASIDE)


def test_threads_name_the_document_too():
    texts = [ASIDE, "abc " * 100_000] * 8
    with pytest.raises(LawError) as caught:
        damaged([ASIDE]).encode_batch(texts, num_threads=2)
    assert texts[caught.value.document] == ASIDE


def test_the_error_goes_from_process_to_process():
    error = LawError("it has the id 7", 3, "source 'web': a.jsonl, line 4")
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert str(error).startswith(
        "encode: source 'web': a.jsonl, line 4 was encoded wrongly: it has the id 7;"
    )
    assert again.document == 3


def attested(tok: Tokenizer) -> dict:
    return json.loads(json.dumps(attestation.make(tok)))


def test_only_tables_that_the_ids_depend_on_are_named():
    plain = tokenizer.train(TRAINING_TEXTS, vocab_size=300)
    normalized = tokenizer.train(TRAINING_TEXTS, vocab_size=300, normalizer="nfc")
    assert list(attested(plain)["unicode"]) == ["split", "tables"]
    assert list(attested(normalized)["unicode"]) == ["split", "tables", "normalizer"]


def test_special_tokens_are_attested_as_tokens_and_as_text(small):
    probes = {probe["name"]: probe["ids"] for probe in attested(small)["probes"]}
    special = small.special_tokens["<|end|>"]
    assert probes["special <|end|>"].count(special) == 3
    assert special not in probes["special <|end|> as text"]


def test_another_tokenizer_is_told_apart(small):
    with pytest.raises(TokenizerError, match=f"{small.vocab_size - 1} was attested"):
        attestation.check(small, attested(small) | {"vocab_size": small.vocab_size - 1})
    with pytest.raises(TokenizerError, match="version=99"):
        attestation.check(small, {"version": 99})
