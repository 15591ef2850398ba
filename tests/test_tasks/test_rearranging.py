"""Fill in the middle on characters: the text is there, cut between characters, whatever the batches."""

import functools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.test_tasks.test_encode import batches_of
from tokmill import tokenizer
from tokmill.tasks.encode.stage import ENCODE_SHARD, EncodeParams
from tokmill.tasks.fim.rearrangement import (
    SHORTEST_CHARS,
    DocumentKeys,
    TextFim,
    choose_cuts,
    encode_rearranged,
)
from tokmill.tasks.formats.tokenizer import publish_tokenizer

SPECIALS = ["<|endoftext|>", "<|prefix|>", "<|suffix|>", "<|middle|>"]
TEXTS = [
    "the cat sat on the mat, наконец",
    "short",
    "猫が座った。" * 5,
    "a b c d e f g h i j k",
    "",
    "x" * 40,
    "two\nlines " * 4,
]


@functools.cache
def trained():
    return tokenizer.train(TEXTS, vocab_size=300, special_tokens=SPECIALS)


END, PREFIX, SUFFIX, MIDDLE = range(296, 300)


def fim(seed=0):
    return TextFim(1.0, 0.5, (PREFIX, SUFFIX, MIDDLE), seed)


def encode(data, offsets):
    return trained().encode_buffers(data, offsets)


def put_back(tokens):
    """The text of a document's tokens, and its form."""
    if PREFIX not in tokens:
        return trained().decode(tokens), "plain"
    assert tokens[0] == PREFIX
    suffix, middle = tokens.index(SUFFIX), tokens.index(MIDDLE)
    parts = [tokens[1:suffix], tokens[middle + 1 :], tokens[suffix + 1 : middle]]
    if suffix == 1:
        parts = [tokens[middle + 1 :], tokens[2:middle]]
    # Every part is text of its own: no character is cut.
    return "".join(trained().decode(part) for part in parts), "spm" if suffix == 1 else "psm"


@given(st.lists(st.text(max_size=40), min_size=1, max_size=8), st.integers(0, 50))
def test_every_text_is_there(texts, seed):
    texts = [text.encode("utf-8", "replace").decode() for text in texts]
    batch = next(batches_of(texts, len(texts)))
    found, added = encode_rearranged(encode, batch, fim(seed=seed))
    for text, tokens, extra in zip(texts, found.to_lists(), added.tolist(), strict=True):
        back, form = put_back(tokens)
        assert back == text
        assert extra == (0 if form == "plain" else 3)
        assert (form != "plain") == (len(text) >= SHORTEST_CHARS)


def test_a_shard_accounts_for_what_was_added(tmp_path, text_corpus):
    corpus = text_corpus({"code": TEXTS})
    params = EncodeParams(fim_rate={"code": 1.0}, fim_tokens=SPECIALS[1:], begin_of_document="<|endoftext|>")
    out, tok, (shard,) = tmp_path / "shard", tmp_path / "tokenizer", corpus.shard_values
    out.mkdir()
    tok.mkdir()
    publish_tokenizer(trained(), tok, exports=False)
    outcome = ENCODE_SHARD.run(params.for_source("code"), out=out, tokenizer=tok, shard=shard)
    tokens = next(account for account in outcome.accounts if account.unit == "tokens")
    assert tokens.balanced
    assert dict(tokens.added) == {"end_of_document": 6, "begin_of_document": 6, "fill_in_the_middle": 15}


def test_what_is_rearranged_depends_on_the_ordinal_not_on_the_place():
    whole = next(batches_of(TEXTS, 99))
    first, _ = encode_rearranged(encode, whole, fim())
    rest = batches_of(TEXTS, 2)
    found = [tokens for batch in rest for tokens in encode_rearranged(encode, batch, fim())[0].to_lists()]
    assert found == first.to_lists()
    assert np.concatenate(found).dtype


def test_every_cut_is_as_likely():
    number = 60_000
    same = np.zeros(number, dtype=np.uint16)
    keys = DocumentKeys(same, np.zeros(number, dtype=np.uint32), np.arange(number, dtype=np.uint32), same)
    a, b = choose_cuts(keys, np.zeros(number, np.uint32), np.full(number, 3, dtype=np.int64), seed=5)
    assert (a <= b).all()
    found = np.bincount(a * 4 + b, minlength=16).reshape(4, 4) / number
    # Both cuts are drawn from 0..3 alike: 1/16 on the diagonal, 2/16 above it.
    assert np.allclose(found, np.triu(np.full((4, 4), 2 / 16)) - np.eye(4) / 16, atol=0.006)
