"""Random vocabularies, text, bytes and counts against the slow references, for as long as one likes.

`TOKMILL_FUZZ_SECONDS=600 python -m pytest -n0 tests/test_tokenizer/test_fuzz.py` goes on for ten minutes a
test. Every round has a seed of its own, which a failure names: `TOKMILL_FUZZ_SEED=…` begins with that round.
"""

import dataclasses
import os
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tiktoken

from tests.effort import fuzz_seconds
from tokmill import tokenizer
from tokmill.tokenizer import PretokenCounts, Tokenizer, encoding
from tokmill.tokenizer.byte_bpe import model as byte_model
from tokmill.tokenizer.byte_bpe.model import define
from tokmill.tokenizer.byte_bpe.ranks import definition_of
from tokmill.tokenizer.components import specials
from tokmill.tokenizer.core import buffers
from tokmill.tokenizer.kernels.cache import BLOCK
from tokmill.tokenizer.merging import trainer
from tokmill.tokenizer.merging.kernels.state import MAX_NARROW
from tokmill.tokenizer.merging.rules import MergeRules
from tokmill.tokenizer.merging.trainer import BpeTrainer
from tokmill.tokenizer.pipeline import encoder
from tokmill.tokenizer.reference import byte_bpe as reference
from tokmill.tokenizer.splitting import SPLIT_PATTERNS, compile_pattern, fallback
from tokmill.tokenizer.splitting.splitter import PreTokenizer

SECONDS = fuzz_seconds(2)
FIRST_SEED = int(os.environ.get("TOKMILL_FUZZ_SEED", "0"))

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
    pieces = [document.decode("utf-8", "surrogateescape")] if document else []
    for expression in tok.splitter.chain:
        compiled = fallback.compile_regex(expression)
        pieces = [part for piece in pieces for part in fallback.isolate(compiled, piece)]
    return [i for piece in pieces for i in slowly(piece.encode("utf-8", "surrogateescape"))]


def rounds() -> Iterator[int]:
    """Seeds, until the time is over; one at least."""
    until, seed = time.monotonic() + SECONDS, FIRST_SEED
    while seed == FIRST_SEED or time.monotonic() < until:
        yield seed
        seed += 1


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


def test_the_published_patterns_cut_random_text_as_regex_does() -> None:
    splitters = [compile_pattern(name) for name in SPLIT_PATTERNS]
    for seed in rounds():
        dice = random.Random(seed)
        document = b"".join(random_bytes(dice) for _ in range(4))
        text = document.decode("utf-8", "surrogateescape")
        data = np.frombuffer(document, np.uint8)
        for splitter in splitters:
            found = splitter.split(data, np.array([0, len(document)]))
            pieces = fallback.isolate(fallback.compile_regex(splitter.chain[0]), text)
            lengths = [len(piece.encode("utf-8", "surrogateescape")) for piece in pieces]
            assert (found.ends - found.starts).tolist() == lengths, (seed, splitter)


def long_document(dice: random.Random, alphabet: str) -> str:
    """Up to some hundred KB, with pre-tokens that are longer than scratch, blocks of short ones between."""
    sizes = [int(2 ** dice.uniform(6, 16)) for _ in range(dice.randrange(1, 7))]
    edges = [encoder.USUAL_BYTES + dice.randrange(-2, 3), 2 * encoder.USUAL_BYTES + dice.randrange(-2, 5)]
    sizes += dice.choices([*edges, specials.CHUNK_BYTES + dice.randrange(-2, 3)], k=dice.randrange(4))
    order = dice.choice(["growing", "shrinking", "any"])
    sizes = dice.sample(sizes, len(sizes)) if order == "any" else sorted(sizes, reverse=order == "shrinking")
    parts = []
    for size in sizes:
        parts.append("".join(dice.choices(alphabet, k=dice.choice([1, 3, 40]))) * size)
        parts[-1] = parts[-1].encode()[: min(size, 1 << 17)].decode("utf-8", "ignore")
        parts += [dice.choice([" a", "  1", ".\n", " é"])] * dice.choice(
            [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 900]
        )
    return dice.choice([" ", "\n", " x "]).join(parts)


def of_tiktoken(tok: Tokenizer, documents: list[str]) -> list[list[int]]:
    """What tiktoken gives for documents, with the same tokens in the same order of merging."""
    made = [left + right for left, right in tok.merges]
    ranks = {token: rank for rank, token in enumerate([bytes([byte]) for byte in range(256)] + made)}
    other = tiktoken.Encoding("fuzz", pat_str=tok.splitter.chain[0], mergeable_ranks=ranks, special_tokens={})
    tokens = {rank: tok.vocab[token] for token, rank in ranks.items()}
    return [[tokens[i] for i in other.encode_ordinary(document)] for document in documents]


def one_by_one(tok: Tokenizer, documents: list[str]) -> list[list[int]]:
    """What pre-tokens give that are encoded one at a time, each with scratch of its own."""
    alone = Tokenizer(dataclasses.replace(tok.definition, pre_tokenizer=PreTokenizer(r"[\s\S]+")))
    cut = [tok.splitter.split_text(document) for document in documents]
    every = {piece for pieces in cut for piece in pieces}
    ids = {piece: alone.encode_batch([piece]).ids.tolist() for piece in every}
    return [[i for piece in pieces for i in ids[piece]] for pieces in cut]


@pytest.mark.slow
def test_nothing_is_found_in_long_pretokens(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in rounds():
        dice = random.Random(seed)
        monkeypatch.setattr(encoder, "USUAL_BYTES", dice.choice([1 << 5, 1 << 8, 1 << 12]))
        monkeypatch.setattr(encoder, "KEPT_BYTES", dice.choice([1, 1 << 13, 1 << 21]))
        monkeypatch.setattr(encoder, "SLICE_BYTES", dice.choice([1, 1 << 10, 1 << 22]))
        monkeypatch.setattr(encoder, "_USUAL_IDS", dice.choice([1 << 12, 1 << 19]))
        monkeypatch.setattr(specials, "CHUNK_BYTES", dice.choice([1 << 10, 1 << 15, 1 << 18]))
        monkeypatch.setattr(encoding, "_LEAST_BYTES_A_PART", dice.choice([1 << 10, 1 << 16]))
        make, expected = dice.choice([(trained, of_tiktoken), (shuffled, one_by_one)])
        tok, _ = make(dice, dice.choice(["gpt2", "cl100k", "o200k"]))
        documents = [long_document(dice, dice.choice(ALPHABETS)) for _ in range(dice.randrange(1, 4))]
        documents += dice.choices(["", " a b", *documents], k=2)
        ids = expected(tok, documents)
        fresh = Tokenizer.from_spec(tok.spec())
        assert fresh.encode_batch(documents).to_lists() == ids, seed
        assert fresh.encode_batch(documents, num_threads=2).to_lists() == ids, seed
        assert [fresh.count_tokens(document) for document in documents] == list(map(len, ids)), seed


def random_rules(dice: random.Random, counts: dict[bytes, int]) -> dict[str, Any]:
    """Rules of merging that leave something to merge, mostly."""
    words = list(counts)
    return {
        "tie_break": dice.choice(["lexicographic_max", "lowest_ids", "first_seen"]),
        "min_frequency": dice.choice([0, 1, 1, 2, 5]),
        "max_token_bytes": dice.choice([None, None, 1, 2, 3, 9]),
        "forbidden": [dice.choice(words)[: dice.randrange(2, 5)] for _ in range(dice.choice([0, 0, 3]))],
    }


def random_counts(dice: random.Random) -> dict[bytes, int]:
    """Words of few letters or of any bytes, with counts of one kind."""
    letters = dice.choice([b"ab", b"abcdefgh", bytes(range(256)), bytes(range(97, 123))])
    limit, longest = dice.choice([1, 3, 100, 1 << 40]), dice.choice([3, 10, 60])
    words = [
        bytes(dice.choices(letters, k=dice.randrange(1, longest))) for _ in range(dice.choice([1, 30, 200]))
    ]
    return {word: dice.randrange(1, limit + 1) for word in words}


def always(number: int) -> Callable[[int], int]:
    """A function that gives a number whatever it is asked."""
    return lambda _asked: number


@pytest.mark.slow
def test_training_makes_the_merges_of_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = trainer._num_buckets
    for seed in rounds():
        dice = random.Random(seed)
        few = always(dice.choice([1, 2, 16, 256]))
        monkeypatch.setattr(trainer, "_num_buckets", dice.choice([few, few, usual]))
        monkeypatch.setattr(trainer, "_LEAST_ROOM", dice.choice([1, 1 << 16]))
        monkeypatch.setattr(trainer, "_MERGES_A_STEP", dice.choice([1, 3, 100]))
        monkeypatch.setattr(trainer, "_CELLS_A_SLICE", dice.choice([1, 50, 1 << 25]))
        monkeypatch.setattr(trainer, "_PLACES_A_SLICE", dice.choice([1, 50, 1 << 23]))
        counts, number = random_counts(dice), dice.choice([1, 5, 60])
        rules = random_rules(dice, counts)
        room, narrow = dice.choice([None, 1, 10, 500]), dice.choice([256, 257, 260, 280, MAX_NARROW])
        flat = PretokenCounts.from_dict(counts, in_order=False)
        training = BpeTrainer(flat, MergeRules(**rules), number, room, narrow)
        training.run(dice.randrange(number + 1))
        training.run(number)
        assert training.merges() == reference.train_merges(counts, number, **rules), seed
