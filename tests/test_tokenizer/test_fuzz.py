"""Random vocabularies, text, bytes and counts against the slow references, for as long as one likes.

`TOKMILL_FUZZ_SECONDS=600 python -m pytest -n0 tests/test_tokenizer/test_fuzz.py` goes on for ten minutes a
test. Every round has a seed of its own, which a failure names: `TOKMILL_FUZZ_SEED=…` begins with that round.
"""

import random
from collections.abc import Callable

import pytest

from tests.test_tokenizer.conftest import by_regex
from tests.test_tokenizer.test_fuzz_files import rounds
from tokmill import tokenizer
from tokmill.tokenizer import Tokenizer
from tokmill.tokenizer.byte_bpe import model as byte_model
from tokmill.tokenizer.byte_bpe.model import define
from tokmill.tokenizer.byte_bpe.ranks import definition_of
from tokmill.tokenizer.components import specials
from tokmill.tokenizer.core import buffers
from tokmill.tokenizer.reference import byte_bpe as reference

ALPHABETS = [
    "ab",
    "ab \n",
    "the qick.'s0123456789\t\r\n  ",
    "абвгд ё",
    "中文字的一是了、。「」",
    "あいうえおカキク日本語ー",
    "aé中😀\u0301\u200d\u00a0ſK\u0378\U0010ffff",
]
PATTERNS = [r"[\s\S]+", "gpt2", "cl100k", "o200k", "deepseek_v3"]


def random_bytes(dice: random.Random) -> bytes:
    """Bytes of one of several kinds: text, text that is damaged, and no text at all."""
    alphabet = dice.choice(ALPHABETS)
    kind, length = dice.randrange(4), dice.choice([3, 20, 80, 300])
    if kind == 0:
        return dice.randbytes(length)
    if kind == 1:
        code_points = [dice.choice([0x80, 0x800, 0xD800, 0x10000, 0x110000]) for _ in range(length)]
        return "".join(chr(dice.randrange(limit)) for limit in code_points).encode("utf-8", "replace")
    text = "".join(dice.choices(alphabet, k=length)).encode()
    if kind == 2:
        text = text[: dice.randrange(len(text) + 1)] * dice.choice([1, 1, 40])
    if dice.random() < 0.3:
        at = dice.randrange(len(text) + 1)
        text = text[:at] + dice.randbytes(2) + text[at:]
    return text


def trained(dice: random.Random, pattern: str) -> tuple[Tokenizer, Callable[[bytes], list[int]]]:
    """A vocabulary that training made of random text."""
    counts = {random_bytes(dice): dice.randrange(1, 9) for _ in range(12)}
    while True:
        try:
            tok = tokenizer.train_from_counts(
                counts, vocab_size=256 + dice.choice([5, 40, 200]), split_pattern=pattern
            )
        except tokenizer.TrainingError:
            counts |= {random_bytes(dice): 3 for _ in range(4)}
        else:
            return tok, by_merges(tok)


def by_merges(tok: Tokenizer) -> Callable[[bytes], list[int]]:
    """The slow way to encode a pre-token with the merges of a tokenizer."""
    ranks = {pair: rank for rank, pair in enumerate(tok.merges)}
    return lambda piece: [tok.vocab[part] for part in reference.encode_pretoken(piece, ranks)]


def shuffled(dice: random.Random, pattern: str) -> tuple[Tokenizer, Callable[[bytes], list[int]]]:
    """A vocabulary whose merges need not rank behind those of their parts."""
    tok, _ = trained(dice, pattern)
    pairs = list(tok.merges)
    for _ in range(dice.choice([1, 3, len(pairs)])):
        i, j = dice.randrange(len(pairs)), dice.randrange(len(pairs))
        pairs[i], pairs[j] = pairs[j], pairs[i]
    tokens = {i: token for i, token in enumerate(tok.definition.tokens) if token}
    other = Tokenizer(define(tokens, pairs, {}, split_pattern=pattern))
    return other, by_merges(other)


def ranked(dice: random.Random, pattern: str) -> tuple[Tokenizer, Callable[[bytes], list[int]]]:
    """A vocabulary as tiktoken has it: byte strings by rank, which need not be reachable by merging."""
    source = b"".join(random_bytes(dice) for _ in range(4))
    tokens: dict[bytes, None] = {}
    for _ in range(dice.choice([5, 60, 300])):
        start = dice.randrange(len(source))
        tokens[source[start : start + dice.randrange(2, 9)]] = None
    longer = [token for token in tokens if len(token) > 1]
    ranks = dict(enumerate([bytes([byte]) for byte in range(256)] + longer))
    vocab = {token: i for i, token in ranks.items()}
    definition = definition_of(ranks, {}, split_pattern=pattern, ignore_merges=None)
    return Tokenizer(definition), lambda piece: reference.encode_by_token_ranks(piece, vocab)


def expected_ids(tok: Tokenizer, slowly: Callable[[bytes], list[int]], document: bytes) -> list[int]:
    """Split with the `regex` package, and encode each pre-token the slow way."""
    return [i for piece in by_regex(tok.splitter.chain, document) for i in slowly(piece)]


@pytest.mark.slow
def test_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in rounds():
        dice = random.Random(seed)
        monkeypatch.setattr(byte_model, "_CACHE_BITS", dice.choice([(2, 1, 5), (12, 8, 9)]))
        monkeypatch.setattr(specials, "CHUNK_BYTES", dice.choice([1, 64, 1 << 18]))
        tok, slowly = dice.choice([trained, shuffled, ranked])(dice, dice.choice(PATTERNS))
        documents = [random_bytes(dice) for _ in range(dice.randrange(1, 8))]
        documents += dice.choices(documents, k=3)
        data, offsets = buffers.pack_bytes(documents)
        batch = tok.encode_buffers(data, offsets)
        assert batch.to_lists() == [expected_ids(tok, slowly, document) for document in documents], seed
        assert [tok.decode_bytes(ids) for ids in batch] == documents, seed
        streamed = "".join(tok.decode_stream(batch.ids.tolist(), "surrogateescape"))
        assert streamed == data.tobytes().decode("utf-8", "surrogateescape"), seed
