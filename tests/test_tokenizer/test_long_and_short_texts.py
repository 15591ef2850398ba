"""Texts and pre-tokens of every length take their own ways, in any order of length, to the same ids."""

import random
from functools import lru_cache

import pytest
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.test_tokenizer.conftest import SPECIALS, TRAINING_TEXTS, any_text
from tokmill import tokenizer
from tokmill.tokenizer import Tokenizer, TokenizerError, encoding
from tokmill.tokenizer.byte_bpe.model import define
from tokmill.tokenizer.components import specials
from tokmill.tokenizer.kernels.cache import BLOCK
from tokmill.tokenizer.pipeline import encoder
from tokmill.tokenizer.splitting import SPLIT_CHAINS, SPLIT_PATTERNS

USUAL = encoder.USUAL_BYTES


@pytest.fixture(scope="module")
def tok() -> Tokenizer:
    """Merges of letters, so that a long word has many tokens of all lengths."""
    dice = random.Random(5)
    counts = {bytes(dice.choices(b" abcd", k=12)): 1 for _ in range(400)}
    return tokenizer.train_from_counts(counts, vocab_size=600)


@pytest.fixture(scope="module", params=["ordered", "shuffled"])
def both(request: pytest.FixtureRequest, tok: Tokenizer) -> Tokenizer:
    """The same, and one whose merges do not come in the order of their parts, which is encoded otherwise."""
    if request.param == "ordered":
        return tok
    pairs = list(tok.merges)
    pairs[0], pairs[-1] = pairs[-1], pairs[0]
    tokens = dict(enumerate(tok.definition.tokens))
    return Tokenizer(define(tokens, pairs, {}, split_pattern="gpt2"))


def oracle(tok: Tokenizer) -> tiktoken.Encoding:
    ranks = {bytes([byte]): byte for byte in range(256)}
    ranks |= {left + right: 256 + rank for rank, (left, right) in enumerate(tok.merges)}
    return tiktoken.Encoding(
        "trained",
        pat_str=r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        mergeable_ranks=ranks,
        special_tokens={},
    )


def words(*lengths: int, seed: int = 0) -> str:
    """Words of so many bytes, each with the space before it."""
    dice = random.Random(seed)
    return "".join(" " + "".join(dice.choices("abcd", k=length - 1)) for length in lengths)


def expected(other: tiktoken.Encoding, tok: Tokenizer, text: str) -> list[int]:
    return [tok.vocab[token] for token in other.decode_tokens_bytes(other.encode_ordinary(text))]


FEW = [3] * (BLOCK + 7)


@pytest.mark.parametrize(
    "lengths",
    [
        [5000, *FEW, 6000],
        [6000, *FEW, 5000],
        [5000, *FEW, 6000, *FEW, 20_000, *FEW, 4097, *FEW, 41_000],
        [USUAL, *FEW, USUAL + 1, *FEW, USUAL - 1, *FEW, USUAL + 2],
        [2 * USUAL + 1, *FEW, 2 * USUAL + 2, *FEW, 2 * USUAL + 3, *FEW, 4 * USUAL + 7],
        [*[3] * (BLOCK - 1), 5000, 6000, *[3] * (BLOCK - 2), 9000],
        [*[3] * BLOCK, 5000, *[3] * (BLOCK - 1), 9000, 3],
    ],
)
def test_several_long_pretokens_are_encoded_as_by_tiktoken(tok, lengths):
    fresh, text = Tokenizer.from_spec(tok.spec()), words(*lengths)
    ids = expected(oracle(tok), tok, text)
    assert fresh.encode(text) == ids
    assert fresh.count_tokens(text) == len(ids)
    assert fresh.encode(text) == ids, "with the scratch that was kept"


@pytest.mark.parametrize("chunk", [-1, 0, 1])
def test_long_pretokens_at_the_edges_of_chunks_harm_no_other_document(tok, chunk, monkeypatch):
    monkeypatch.setattr(specials, "CHUNK_BYTES", 1 << 15)
    texts = [
        words(5000, *FEW, 6000),
        words((1 << 15) + chunk),
        "",
        words(*FEW),
        words(4097, 4096, (1 << 15) + chunk - 8193),
        words(*FEW, 70_000, *FEW, 90_000),
        words(3),
    ]
    other = oracle(tok)
    ids = [expected(other, tok, text) for text in texts]
    assert Tokenizer.from_spec(tok.spec()).encode_batch(texts).to_lists() == ids
    many = Tokenizer.from_spec(tok.spec()).encode_batch(texts * 12, num_threads=2)
    assert many.to_lists() == ids * 12


@pytest.mark.parametrize("slice_bytes", [1, 100, 768, 769, 5000])
def test_where_a_slice_ends_changes_nothing(both, slice_bytes, monkeypatch):
    texts = [words(*FEW, 5000, *FEW), "", words(*FEW, *FEW, seed=1), words(9000, seed=2)]
    whole = both.encode_batch(texts).to_lists()
    monkeypatch.setattr(encoder, "SLICE_BYTES", slice_bytes)
    assert Tokenizer.from_spec(both.spec()).encode_batch(texts).to_lists() == whole


def test_more_than_positions_can_tell_is_refused(tok, monkeypatch):
    monkeypatch.setattr(encoder, "MOST_BYTES", 9000)
    fresh = Tokenizer.from_spec(tok.spec())
    assert fresh.decode(fresh.encode(words(9000))) == words(9000)
    with pytest.raises(TokenizerError, match="a pre-token has 9001 bytes, but at most 9000"):
        fresh.encode(words(9001))
    assert fresh.decode(fresh.encode(words(9000))) == words(9000)


PATTERNS = [*SPLIT_PATTERNS, *SPLIT_CHAINS, r"(a)+|b", r"[a-z]+", r"(?<=a)b|\w+|\s"]


@lru_cache(maxsize=32)
def made(pattern: str, *names: str) -> Tokenizer:
    return tokenizer.train(TRAINING_TEXTS, vocab_size=310, split_pattern=pattern, special_tokens=names)


@pytest.mark.parametrize("names", [(), tuple(SPECIALS), ("<s>", "[b]")])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_ids_and_counts_are_those_of_a_batch(pattern, names):
    tok = made(pattern, *names)

    @settings(max_examples=30)  # of each of the combinations, more than a thousand in all
    @given(any_text() | st.text("a<>[]sb\ud800 ", max_size=20), st.sampled_from([{}, {"as_text": True}]))
    def check(text, how):
        how = how or {"allowed_special": "all"}
        expected = tok.encode_batch([text], **how)[0].tolist()
        assert tok.encode(text, **how) == expected
        assert tok.encode(text, **how) == expected  # what was learnt
        assert tok.count_tokens(text, **how) == len(expected)

    check()


def test_what_is_known_is_bounded(monkeypatch):
    monkeypatch.setattr(encoding, "_MOST_KNOWN", 3)
    tok = made("gpt2", "<bounded>")
    for number in range(40):
        text = f"the fox{number} has {number}"
        assert tok.encode(text) == tok.encode_batch([text])[0].tolist()
    assert len(tok._short_texts._known) < 10


@pytest.mark.parametrize("kept", [1, 1 << 21])
def test_scratch_is_kept_up_to_a_size(tok, kept, monkeypatch):
    monkeypatch.setattr(encoder, "KEPT_BYTES", kept)
    fresh, text = Tokenizer.from_spec(tok.spec()), words(5000, *FEW, 20_000)
    assert fresh.encode(text) == fresh.encode(text) == expected(oracle(tok), tok, text)
