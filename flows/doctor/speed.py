"""Five seconds of training, encoding and packing, against what a quiet machine of the log does.

The work is fixed: made-up words from a seed, so that it needs no file and never changes. Each part is
repeated for a second and a half; the fastest round counts, which other work on the machine disturbs least.
The figures of `benchmarks/log/measurements.md` (2026-11-24) are for one thread.
"""

import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, NamedTuple

from tokmill.flows.doctor.report import Part

if TYPE_CHECKING:
    from tokmill.tokenizer import EncodedBatch, PretokenCounts, Tokenizer

LOGGED: Final[Mapping[str, float]] = {"train": 245_000.0, "encode": 397.0, "pack": 78.0}
"""Of the machine in the log: merges per second, megabytes of text and millions of tokens per second."""
UNITS: Final[Mapping[str, str]] = {"train": "merges/s", "encode": "MB/s", "pack": "million tokens/s"}

_SECONDS = 1.5
_SLOW = 0.5
_LETTERS = "etaoinshrdlucmfwypvbgk"
_NUM_WORDS, _NUM_DOCUMENTS, _WORDS_PER_DOCUMENT = 20_000, 2_000, 200
_VOCAB_SIZE = 4_096
_LENGTH = 1_024


class Measured(NamedTuple):
    """Amounts per second by part of the work, and the seconds that all took."""

    rates: Mapping[str, float]
    seconds: float


def look_at_speed(measured: Measured | None = None) -> Part:
    """Return the speed of the kernels, as ratios to the log's."""
    began = time.perf_counter()
    rates, seconds = measured or measure()
    ratios = {name: rate / LOGGED[name] for name, rate in rates.items()}
    found = Part("speed")
    found.figures = {
        name: {"rate": round(rates[name], 3), "unit": UNITS[name], "ratio": round(ratio, 3)}
        for name, ratio in ratios.items()
    }
    found.figures["seconds"] = round(seconds or time.perf_counter() - began, 2)
    found.facts = {
        name: f"{rates[name]:,.0f} {UNITS[name]}, {ratio:.2f} × the log's {LOGGED[name]:,.0f}"
        for name, ratio in ratios.items()
    }
    slow = [name for name, ratio in ratios.items() if ratio < _SLOW]
    if slow:
        found.note(
            "slow",
            f"{' and '.join(slow)} take more than twice as long as on the log's machine",
            "look for other work on this machine (its load is above), and for limits of its processor",
        )
    return found


def measure() -> Measured:
    """Measure each part once the kernels are compiled."""
    from tokmill.tokenizer import count_pretokens  # noqa: PLC0415 - loads numba

    began = time.perf_counter()
    texts = documents()
    counts = count_pretokens(texts)
    tok, trained = _train(counts)
    encoded, encode = _encode(tok, texts)
    packed = _pack(tok, encoded)
    rates = {"train": trained, "encode": encode, "pack": packed}
    return Measured(rates, time.perf_counter() - began)


def documents() -> list[str]:
    """Return the text: words of random letters, frequent ones more often, the same every time."""
    generator = random.Random(0)  # noqa: S311 - nothing depends on its secrecy
    words = ["".join(generator.choices(_LETTERS, k=2 + number % 9)) for number in range(_NUM_WORDS)]
    weights = [1 / rank for rank in range(1, _NUM_WORDS + 1)]
    drawn = generator.choices(words, weights, k=_NUM_DOCUMENTS * _WORDS_PER_DOCUMENT)
    every = range(0, len(drawn), _WORDS_PER_DOCUMENT)
    return [" ".join(drawn[first : first + _WORDS_PER_DOCUMENT]) for first in every]


def _train(counts: "PretokenCounts") -> "tuple[Tokenizer, float]":
    from tokmill.tokenizer import train_from_counts  # noqa: PLC0415 - loads numba

    def train() -> "Tokenizer":
        return train_from_counts(counts, vocab_size=_VOCAB_SIZE, special_tokens=["<|endoftext|>"])

    tok = train()
    return tok, (_VOCAB_SIZE - 257) / _fastest(train)


def _encode(tok: "Tokenizer", texts: list[str]) -> "tuple[EncodedBatch, float]":
    num_bytes = sum(map(len, texts))

    def encode() -> "EncodedBatch":
        return tok.encode_batch(texts)

    encoded = encode()
    return encoded, num_bytes / 1e6 / _fastest(encode)


def _pack(tok: "Tokenizer", encoded: "EncodedBatch") -> float:
    """Pack by best fit, from the encoded documents to shards on the disk."""
    from tokmill.flows.doctor.packing import packing_of  # noqa: PLC0415 - loads pyarrow

    with TemporaryDirectory(prefix="tokmill-doctor-") as folder:
        pack = packing_of(tok, encoded, Path(folder), _LENGTH)
        pack()
        return len(encoded.ids) / 1e6 / _fastest(pack)


def _fastest(work: Callable[[], object]) -> float:
    """Return the seconds of the fastest round of work."""
    until, least = time.perf_counter() + _SECONDS, float("inf")
    while time.perf_counter() < until:
        began = time.perf_counter()
        work()
        least = min(least, time.perf_counter() - began)
    return least
