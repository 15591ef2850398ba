"""Five seconds of training, encoding and packing, against what a quiet machine of the log does.

The text is fixed: words of random letters from a seed. Each part is repeated for a second and a half, and the
fastest round counts. The figures of `benchmarks/log/measurements.md` (2026-11-24) are for one thread.
"""

import random
import time
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import numpy as np

from tokmill.flows.doctor.report import Part
from tokmill.tasks.encode.encoding import write_shard
from tokmill.tasks.formats.encoded import (
    EncodedManifest,
    EncodedStatistics,
    ShardEntry,
    SourceEntry,
    token_dtype,
)
from tokmill.tasks.mixing import stage as mixing
from tokmill.tasks.packing import stage as packing
from tokmill.tasks.packing.params import PackParams
from tokmill.tasks.store.digest import digest_folder
from tokmill.tokenizer import EncodedBatch, Tokenizer, count_pretokens, train_from_counts

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
    part = Part("speed")
    part.figures = {
        name: {"rate": round(rates[name], 3), "unit": UNITS[name], "ratio": round(ratio, 3)}
        for name, ratio in ratios.items()
    }
    part.figures["seconds"] = round(seconds or time.perf_counter() - began, 2)
    part.facts = {
        name: f"{rates[name]:,.0f} {UNITS[name]}, {ratio:.2f} × the log's {LOGGED[name]:,.0f}"
        for name, ratio in ratios.items()
    }
    slow = [name for name, ratio in ratios.items() if ratio < _SLOW]
    if slow:
        part.note(
            "slow",
            f"{' and '.join(slow)} take more than twice as long as on the log's machine",
            "look for other work on this machine (its load is above), and for limits of its processor",
        )
    return part


def measure() -> Measured:
    """Measure each part once the kernels are compiled."""
    began = time.perf_counter()
    texts = documents()
    counts = count_pretokens(texts)

    def train() -> Tokenizer:
        return train_from_counts(counts, vocab_size=_VOCAB_SIZE, special_tokens=["<|endoftext|>"])

    tok = train()
    encoded = tok.encode_batch(texts)
    with TemporaryDirectory(prefix="tokmill-doctor-") as folder:
        pack = packing_of(tok, encoded, Path(folder), _LENGTH)
        pack()
        rates = {
            "train": (_VOCAB_SIZE - 257) / _fastest(train),
            "encode": sum(map(len, texts)) / 1e6 / _fastest(lambda: tok.encode_batch(texts)),
            "pack": len(encoded.ids) / 1e6 / _fastest(pack),
        }
    return Measured(rates, time.perf_counter() - began)


def documents() -> list[str]:
    """Return the text: words of random letters, frequent ones more often, the same every time."""
    generator = random.Random(0)  # noqa: S311 - nothing depends on its secrecy
    words = ["".join(generator.choices(_LETTERS, k=2 + number % 9)) for number in range(_NUM_WORDS)]
    weights = [1 / rank for rank in range(1, _NUM_WORDS + 1)]
    drawn = generator.choices(words, weights, k=_NUM_DOCUMENTS * _WORDS_PER_DOCUMENT)
    every = range(0, len(drawn), _WORDS_PER_DOCUMENT)
    return [" ".join(drawn[first : first + _WORDS_PER_DOCUMENT]) for first in every]


def _fastest(work: Callable[[], object]) -> float:
    """Return the seconds of the fastest round of work."""
    until, least = time.perf_counter() + _SECONDS, float("inf")
    while time.perf_counter() < until:
        began = time.perf_counter()
        work()
        least = min(least, time.perf_counter() - began)
    return least


def packing_of(tok: Tokenizer, encoded: EncodedBatch, folder: Path, length: int) -> Callable[[], None]:
    """Write an encoding and its mixture into a folder; return what packs it, each time into a new folder."""
    shard, manifest, mixture = (_made(folder / name) for name in ("shard", "encoded", "mixture"))
    _write_encoded(tok, encoded, shard, manifest)
    mixing.run(mixing.MixParams(), out=mixture, encoded=manifest, shards=[shard])
    params, numbers = PackParams(sequence_length=length, strategy="best_fit"), count()

    def pack() -> None:
        number = next(numbers)
        plan, out = _made(folder / f"plan-{number}"), _made(folder / f"packed-{number}")
        packing.run_plan(params.plan_params(), out=plan, mixture=mixture, encoded=manifest, shards=[shard])
        packing.run_shard(params.shard_params(0), out=out, plan=plan, encoded=manifest, shards=[shard])

    return pack


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _write_encoded(tok: Tokenizer, encoded: EncodedBatch, shard: Path, manifest: Path) -> None:
    num_documents, num_tokens = len(encoded), len(encoded.ids)
    figures = EncodedStatistics(num_documents=num_documents, num_tokens=num_tokens)
    with write_shard(shard, tok.vocab_size) as writer:
        writer.append(encoded.ids, encoded.offsets, np.arange(num_documents, dtype=np.int64), figures)
    digest = digest_folder(shard)
    entry = ShardEntry(index=0, digest=digest, num_documents=num_documents, num_tokens=num_tokens)
    content = EncodedManifest(
        tokenizer="0" * 64,
        dtype=token_dtype(tok.vocab_size),
        vocab_size=tok.vocab_size,
        end_of_document_id=None,
        sources=[SourceEntry(source="text", statistics=figures, shards=[entry])],
    )
    content.save(manifest)
