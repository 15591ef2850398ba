"""`vocab_tokens` on small vocabularies of every family, worked out by hand."""

import numpy as np
import pytest

from tokmill import tokenizer
from tokmill.tasks.audit.tokens import SCHEMA, Occurrences, describe_tokens
from tokmill.tokenizer import Tokenizer

BYTES = {bytes([byte]): byte for byte in range(256)}


def table(tok: Tokenizer, **given) -> dict[str, dict]:
    rows = describe_tokens(tok, **given)
    assert rows.schema == SCHEMA
    return {row["text"]: row for row in rows.to_pylist()}


@pytest.fixture(scope="module")
def pairs() -> Tokenizer:
    """Byte-level BPE with a token across pre-tokens, a twin in NFC, and one whose merges come too late."""
    added = [
        b"ab",
        b" T",
        b" Th",
        b"b c",
        "é".encode(),
        "e\u0301".encode(),
        b"12",
        b"\xcc\x81",
        b"bc",
        b"abc",
    ]
    vocab = BYTES | {token: 256 + i for i, token in enumerate(added)}
    merges = [(b"a", b"b"), (b" ", b"T"), (b" T", b"h"), (b"b", b"c"), (b"\xc3", b"\xa9"), (b"1", b"2")]
    merges += [(b"\xcc", b"\x81"), (b"e", b"\xcc\x81"), (b"a", b"bc")]
    return Tokenizer.from_vocab(vocab, merges, special_tokens={"<|end|>": 266}, ignore_merges=False)


def test_what_a_token_is(pairs: Tokenizer) -> None:
    rows = table(pairs)
    th = rows[" Th"]
    assert (th["kind"], th["rank"], th["left"], th["right"]) == ("merge", 2, 257, ord("h"))
    assert (th["num_bytes"], th["num_chars"], th["scripts"], th["categories"]) == (3, 3, "Latin", "LZ")
    assert (th["leading_space"], th["casing"], th["run"], th["word"]) == (True, "title", None, "th")
    assert (rows["12"]["run"], rows["12"]["word"], rows[" "]["run"]) == ("number", "12", "white_space")
    assert (rows["\\xcc"]["is_utf8"], rows["\\xcc"]["num_chars"], rows["\\xcc"]["word"]) == (
        False,
        None,
        None,
    )
    assert rows["<|end|>"]["reachable"] is None


def test_what_no_text_gives(pairs: Tokenizer) -> None:
    rows = table(pairs)
    assert rows["ab"]["reachable"]
    assert rows[" Th"]["reachable"]
    assert rows["bc"]["reachable"]
    # "ab" is merged before "bc", so "abc" is "ab" and "c"; a space always begins a pre-token
    assert (rows["abc"]["reachable"], rows["abc"]["encodes_to"]) == (False, [256, ord("c")])
    assert (rows["b c"]["reachable"], rows["b c"]["encodes_to"]) == (False, [98, 32, 99])
    assert rows["\\xc3"]["reachable"]
    assert not rows["\\xc0"]["reachable"]


def test_occurrences_in_training(pairs: Tokenizer) -> None:
    counts = np.zeros(pairs.vocab_size, np.uint64)
    counts[[256, 258]] = 7, 2
    rows = table(pairs, training=Occurrences(counts, counts / 2))
    assert (rows["ab"]["num_training"], rows["ab"]["weighted_training"]) == (7, 3.5)
    assert (rows[" T"]["redundant"], rows[" Th"]["redundant"], rows["bc"]["redundant"]) == (True, False, True)
    assert table(pairs)[" T"]["redundant"] is None


TEXTS = ["the cat sat on the mat, the cats sit", "unhappy cats unwind", "mats and hats"] * 3
FAMILIES = {
    "wordpiece": {"split_pattern": "bert", "special_tokens": ["[UNK]"]},
    "word_bpe": {"special_tokens": ["[UNK]"]},
    "unigram": {"special_tokens": ["[UNK]"]},
    "char_bpe": {"special_tokens": ["[UNK]"]},
    "word_level": {"special_tokens": ["[UNK]"]},
    "character_level": {"special_tokens": ["[UNK]"]},
    "byte_bpe": {},
}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_its_tokens_and_those_that_it_gives_are_reachable(family: str) -> None:
    tok = tokenizer.train(TEXTS, family=family, vocab_size=300, allow_smaller=True, **FAMILIES[family])
    rows = describe_tokens(tok).to_pylist()
    given = set(tok.encode_batch(TEXTS).ids.tolist())
    assert {row["token_id"] for row in rows if row["reachable"] is False}.isdisjoint(given)
    assert [row["token_id"] for row in rows] == list(range(tok.vocab_size))
    assert all(row["encodes_to"] for row in rows if row["reachable"] is False and row["is_utf8"])


def test_marks_are_no_part_of_a_surface() -> None:
    tok = tokenizer.train(
        TEXTS, family="wordpiece", vocab_size=60, allow_smaller=True, **FAMILIES["wordpiece"]
    )
    rows = table(tok)
    inner = next(row for text, row in rows.items() if text.startswith("##") and len(text) > 3)
    assert (inner["num_chars"], inner["leading_space"]) == (len(inner["text"]) - 2, False)
    assert rows["the"]["leading_space"]


def test_sentencepiece_marks_are_spaces() -> None:
    tok = tokenizer.train(TEXTS, family="unigram", mode="sentencepiece", vocab_size=60, allow_smaller=True)
    rows = table(tok)
    assert (rows["▁the"]["word"], rows["▁the"]["leading_space"], rows["▁the"]["reachable"]) == (
        "the",
        True,
        True,
    )
