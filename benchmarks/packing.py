"""Packing: best fit against OLMo-core's and TRL's, all strategies on real documents, and packing to disk.

    python -m venv bench && bench/bin/pip install . torch ai2-olmo-core trl
    bench/bin/python benchmarks/packing.py                # everything below the shared data, 2,048 and 8,192
    bench/bin/python benchmarks/packing.py --length 4096 --repeat 5
    bench/bin/python benchmarks/packing.py --documents 50000000 --only memory

`planning`: the same documents, cut to the sequence length, in windows of 20,000, are packed by everyone.
Ours is the whole way from lengths to places; OLMo-core's is `InstancePacker.pack_documents`, TRL's is
`pack_dataset` on one-byte tokens, so that moving them costs it next to nothing. Before a time counts, every
document must be in one sequence, and none over its length. Best CPU time of `--repeat` rounds, in turns.

`strategies`: every strategy of ours on the same documents, uncut: padding, documents cut, tokens lost.

`disk`: the documents' real tokens, planned by best fit and written as `memmap` by the packing stages, beside
`copy`, which writes as many bytes from memory with one call; wall clock and CPU time of one core.

`memory`: planning `--documents` documents of made-up lengths and writing a shard, in a process of its own;
its peak.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from tokmill import tokenizer
from tokmill.tasks.encode.encoding import write_shard
from tokmill.tasks.formats.encoded import EncodedManifest, EncodedStatistics, ShardEntry, SourceEntry
from tokmill.tasks.formats.mixture import Plan, RequestTable
from tokmill.tasks.packing.plan import plan_packing
from tokmill.tasks.packing.stage import PACK_SHARD, PackParams
from tokmill.tasks.packing.strategies import Packer, cut_documents
from tokmill.tasks.store.digest import digest_folder

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
STRATEGIES = ("concat", "greedy", "best_fit", "first_fit_decreasing", "pad")
WINDOW = 20_000
END_ID = 100_257
Bins = np.ndarray
"""The sequence of each document: int64 [d]."""


@dataclass(frozen=True)
class Documents:
    """Encoded documents in a shuffled order: `tokens[offsets[k]:offsets[k + 1]]`, end tokens included."""

    tokens: np.ndarray
    offsets: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)


def texts(folder: Path) -> Iterator[str]:
    """Every document of the shared data: a text of a corpus, or a line of a translation."""
    for file in sorted((folder / "corpora").glob("*.jsonl.zst")):
        with file.open("rb") as raw, zstandard.ZstdDecompressor().stream_reader(raw) as stream:
            yield from (json.loads(line)["text"] for line in stream.read().splitlines())
    for file in sorted((folder / "ntrex").glob("*.txt")):
        yield from file.read_text(encoding="utf-8").splitlines()


def encoded(folder: Path) -> Documents:
    """Encode everything with cl100k, and shuffle."""
    tok = tokenizer.load(folder / "vocabs" / "cl100k_base.tiktoken", split_pattern="cl100k")
    batch = tok.encode_batch([text for text in texts(folder) if text])
    order = np.random.default_rng(0).permutation(len(batch.offsets) - 1)
    lengths = np.diff(batch.offsets)[order]
    offsets = np.concatenate([[0], np.cumsum(lengths + 1)])
    tokens = np.full(offsets[-1], END_ID, dtype=np.uint32)
    for place, document in enumerate(order.tolist()):
        tokens[offsets[place] : offsets[place] + lengths[place]] = batch[document]
    return Documents(tokens, offsets)


def without_forms(lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Nothing is rearranged, and all is of one source."""
    return np.zeros(len(lengths), dtype=np.uint8), np.zeros(len(lengths), dtype=np.uint16)


def ours(lengths: np.ndarray, capacity: int) -> Bins:
    packing, parts = Packer("best_fit", capacity), []
    for start in range(0, len(lengths), WINDOW):
        window = lengths[start : start + WINDOW]
        pieces = packing.pack(window, *without_forms(window))
        bins = np.empty(len(window), dtype=np.int64)
        bins[pieces.document] = pieces.sequence
        parts.append(bins)
    return np.concatenate(parts)


def olmo_core(lengths: np.ndarray, capacity: int) -> Bins:
    from olmo_core.data.utils import InstancePacker

    parts, first = [], 0
    for start in range(0, len(lengths), WINDOW):
        window = lengths[start : start + WINDOW]
        ends = np.cumsum(window)
        instances, sorted_indices, _ = InstancePacker(capacity).pack_documents(
            np.stack([ends - window, ends], axis=1)
        )
        document = np.searchsorted(ends, sorted_indices[:, 0], side="right")
        bins = np.empty(len(window), dtype=np.int64)
        for number, instance in enumerate(instances):
            bins[document[instance]] = first + number
        first += len(instances)
        parts.append(bins)
    return np.concatenate(parts)


def trl(lengths: np.ndarray, capacity: int) -> Bins:
    from datasets import Dataset, disable_progress_bars
    from trl import pack_dataset

    disable_progress_bars()
    values = np.zeros(int(lengths.sum()), dtype=np.int8)
    column = pa.LargeListArray.from_arrays(
        pa.array(np.concatenate([[0], np.cumsum(lengths)])), pa.array(values)
    )
    table = Dataset(pa.table({"input_ids": column}))
    packed = pack_dataset(
        table, capacity, strategy="bfd", map_kwargs={"batch_size": WINDOW, "keep_in_memory": True}
    )
    sizes = [chunk.tolist() for chunk in packed.with_format("numpy")["seq_lengths"]]
    # TRL does not say which document went where, but of equal lengths any will do.
    waiting: dict[int, list[int]] = {}
    for document in range(len(lengths) - 1, -1, -1):
        waiting.setdefault(int(lengths[document]), []).append(document)
    bins = np.full(len(lengths), -1, dtype=np.int64)
    for number, pieces in enumerate(sizes):
        for length in pieces:
            bins[waiting[length].pop()] = number
    return bins


class Timed:
    """Takes the CPU time of the packing alone: what turns a peer's result into bins does not count."""

    def __init__(self, pack: Callable[[np.ndarray, int], Bins], inner: str | None) -> None:
        self._pack, self._inner = pack, inner

    def run(self, lengths: np.ndarray, capacity: int) -> tuple[Bins, float]:
        if self._inner is None:
            begin = time.process_time()
            bins = self._pack(lengths, capacity)
            return bins, time.process_time() - begin
        module_name, name = self._inner.split(":")
        module = __import__(module_name, fromlist=["_"])
        owner, attribute = module, name
        if "." in name:
            owner, attribute = getattr(module, name.split(".")[0]), name.split(".")[1]
        real, spent = getattr(owner, attribute), [0.0]

        def timed(*args, **kwargs):
            begin = time.process_time()
            try:
                return real(*args, **kwargs)
            finally:
                spent[0] += time.process_time() - begin

        setattr(owner, attribute, timed)
        try:
            bins = self._pack(lengths, capacity)
        finally:
            setattr(owner, attribute, real)
        return bins, spent[0]


SIDES = {
    "tokmill": Timed(ours, None),
    "OLMo-core": Timed(olmo_core, "olmo_core.data.utils:InstancePacker.pack_documents"),
    "TRL": Timed(trl, "trl.data_utils:_pack_bfd"),
}


def check(lengths: np.ndarray, bins: Bins, capacity: int) -> float:
    """Every document is in a sequence, and no sequence is over its length; return how full they are."""
    if len(bins) != len(lengths) or bins.min() < 0:
        raise SystemExit("a document is in no sequence")
    filled = np.bincount(bins, weights=lengths)
    if filled.max() > capacity or (filled == 0).any() or filled.sum() != lengths.sum():
        raise SystemExit("a sequence is over its length, or empty")
    return float(filled.sum() / (len(filled) * capacity))


def planning(documents: Documents, lengths: list[int], repeat: int) -> None:
    print(
        "\n| sequence length | packer | full | pieces a second | ours is |\n| --- | --- | --- | --- | --- |"
    )
    for capacity in lengths:
        pieces = cut_documents(
            documents.lengths, capacity, "split", np.zeros(len(documents.lengths), dtype=np.uint8)
        ).length
        pieces = np.ascontiguousarray(pieces[pieces < capacity])
        ours(pieces[:100], capacity)
        best: dict[str, float] = {}
        full: dict[str, float] = {}
        sides = dict(SIDES)
        for _ in range(repeat):
            for name, side in list(sides.items()):
                try:
                    bins, seconds = side.run(pieces, capacity)
                except ImportError as error:
                    print(f"({name} left out: {error})", file=sys.stderr)
                    del sides[name]
                    continue
                full[name] = check(pieces, bins, capacity)
                best[name] = min(seconds, best.get(name, seconds))
        for name, seconds in best.items():
            print(
                f"| {capacity:,} | {name} | {full[name]:.4%} | {len(pieces) / seconds:,.0f} | "
                f"{seconds / best['tokmill']:.0f} times as fast |"
            )
        sys.stdout.flush()


def strategies(documents: Documents, lengths: list[int]) -> None:
    print(f"\n{len(documents.lengths):,} documents, {len(documents.tokens):,} tokens\n")
    print(
        "| sequence length | strategy | padding | documents cut that would have fitted | split, too long |"
        " tokens lost | documents a second |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    rules = [(strategy, "split") for strategy in STRATEGIES]
    rules += [("best_fit", "truncate"), ("best_fit", "drop")]
    for strategy, _ in rules:  # machine code is made before any time counts
        _strategy_row(documents.lengths[:10], 2048, strategy, "split")
    for capacity in lengths:
        for strategy, long_documents in rules:
            print(_strategy_row(documents.lengths, capacity, strategy, long_documents), flush=True)


def _strategy_row(lengths: np.ndarray, capacity: int, strategy: str, long_documents: str) -> str:
    packing = Packer(strategy, capacity, long_documents)
    window = WINDOW if strategy in {"best_fit", "first_fit_decreasing"} else 1 << 18
    kept, num_sequences, num_pieces = 0, 0, np.zeros(len(lengths), dtype=np.int64)
    spent = 0.0
    for start in range(0, len(lengths), window):
        part = lengths[start : start + window]
        begin = time.process_time()
        pieces = packing.pack(part, *without_forms(part))
        spent += time.process_time() - begin
        kept += pieces.num_tokens
        num_sequences = max(num_sequences, pieces.num_sequences)
        num_pieces[start : start + window] = np.bincount(pieces.document, minlength=len(part))
    cut = int(((num_pieces > 1) & (lengths <= capacity)).sum())
    split = int(((num_pieces > 1) & (lengths > capacity)).sum())
    name = strategy if long_documents == "split" else f"{strategy}, {long_documents}"
    padding = 1 - kept / (num_sequences * capacity)
    return (
        f"| {capacity:,} | {name} | {padding:.4%} | {cut:,} | {split:,} | {lengths.sum() - kept:,} | "
        f"{len(lengths) / spent:,.0f} |"
    )


@dataclass(frozen=True)
class Batches:
    """Stands for a mixture: a plan in batches, in the one order that there is."""

    manifest: "MixtureFigures"
    sources: list[str]
    parts: Callable[[], Iterator[Plan]]

    def batches(self) -> Iterator[Plan]:
        return self.parts()

    def request(self) -> RequestTable:
        """Its one source gives every token."""
        one, end = np.ones((1, 1)), float(max(1, self.manifest.num_tokens))
        return RequestTable(np.array([0.0, end]), one, one, 0 * one)


@dataclass(frozen=True)
class MixtureFigures:
    num_documents: int
    num_tokens: int
    sources: list
    first_document_starts: tuple = ()
    first_position: int = 0
    curriculum: bool = False


@dataclass(frozen=True)
class OneSource:
    source: str
    drawn_documents: int
    drawn_tokens: int
    share: float = 1.0


def plan_of(num_tokens: np.ndarray, first: int, documents_per_shard: int) -> Plan:
    number = np.arange(first, first + len(num_tokens))
    zeros = np.zeros(len(num_tokens), dtype=np.uint16)
    return Plan(
        source=zeros,
        shard=(number // documents_per_shard).astype(np.uint32),
        document=(number % documents_per_shard).astype(np.uint32),
        epoch=zeros,
        num_tokens=num_tokens.astype(np.uint32),
    )


def manifest_of(entries: list[ShardEntry], vocab_size: int) -> EncodedManifest:
    num_documents = sum(entry.num_documents for entry in entries)
    num_tokens = sum(entry.num_tokens for entry in entries)
    source = SourceEntry(
        source="all",
        statistics=EncodedStatistics(num_documents=num_documents, num_tokens=num_tokens),
        shards=entries,
    )
    return EncodedManifest(
        tokenizer="0" * 64, dtype="uint32", vocab_size=vocab_size, end_of_document_id=END_ID, sources=[source]
    )


def disk(documents: Documents, lengths: list[int], repeat: int) -> None:
    print(
        "\n| sequence length | | MB of tokens | MB/s, wall clock | MB/s, CPU |"
        "\n| --- | --- | --- | --- | --- |"
    )
    with tempfile.TemporaryDirectory(prefix="tokmill-packing-") as name:
        folder = Path(name)
        paths, manifest, per_shard = _encoded_shards(documents, folder)
        (folder / "encoded").mkdir()
        (folder / "encoded" / "encoded.json").write_text(manifest.model_dump_json())
        for capacity in lengths:
            params = PackParams(sequence_length=capacity, strategy="best_fit", sequences_per_shard=1 << 30)
            plan = folder / f"plan-{capacity}"
            plan.mkdir()
            order = np.random.default_rng(1).permutation(len(documents.lengths))
            _plan_shuffled(params, documents, order, per_shard, manifest, plan)
            inputs = {"plan": plan, "encoded": folder / "encoded", "shards": paths}
            for turn in range(repeat + 1):
                out = folder / "out"
                out.mkdir()
                outcome, times = _timed(partial(PACK_SHARD.run, params.shard_params(0), out=out, **inputs))
                if turn == 0:  # machine code was made, and files came into the page cache
                    shutil.rmtree(out)
                    continue
                megabytes = outcome.metrics["num_sequences"] * capacity * 4 / 1e6
                _print_speed(capacity, "packed", megabytes, times)
                data = np.fromfile(out / "shard-00000.bin", dtype=np.uint32)
                shutil.rmtree(out)
                _, times = _timed(partial(data.tofile, folder / "copy.bin"))
                _print_speed(capacity, "copy", megabytes, times)
                (folder / "copy.bin").unlink()


def _timed(work: Callable[[], Any]) -> tuple[Any, tuple[float, float]]:
    """What the work gives, and the wall clock and CPU seconds that it took."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return result, (time.perf_counter() - wall, time.process_time() - cpu)


def _print_speed(capacity: int, what: str, megabytes: float, times: tuple[float, float]) -> None:
    speeds = " | ".join(f"{megabytes / seconds:,.0f}" for seconds in times)
    print(f"| {capacity:,} | {what} | {megabytes:,.0f} | {speeds} |", flush=True)


def _encoded_shards(documents: Documents, folder: Path, per_shard: int = 16_384):
    paths, entries = [], []
    for index, first in enumerate(range(0, len(documents.lengths), per_shard)):
        offsets = documents.offsets[first : first + per_shard + 1]
        path = folder / f"shard-{index}"
        path.mkdir()
        tokens = documents.tokens[offsets[0] : offsets[-1]]
        statistics = EncodedStatistics(num_documents=len(offsets) - 1, num_tokens=len(tokens))
        with write_shard(path, END_ID + 1) as writer:
            writer.append(tokens, offsets - offsets[0], np.arange(len(offsets) - 1), statistics)
        paths.append(path)
        entries.append(
            ShardEntry(
                index=index,
                digest=digest_folder(path),
                num_documents=len(offsets) - 1,
                num_tokens=len(tokens),
            )
        )
    return paths, manifest_of(entries, END_ID + 1), per_shard


def _plan_shuffled(params, documents, order, per_shard, manifest, out) -> None:
    lengths = documents.lengths[order]

    def parts() -> Iterator[Plan]:
        plan = plan_of(lengths, 0, per_shard)
        yield Plan(
            source=plan.source,
            shard=(order // per_shard).astype(np.uint32),
            document=(order % per_shard).astype(np.uint32),
            epoch=plan.epoch,
            num_tokens=plan.num_tokens,
        )

    figures = OneSource("all", len(lengths), int(lengths.sum()))
    mixture = Batches(MixtureFigures(len(lengths), int(lengths.sum()), [figures]), ["all"], parts)
    plan_packing(params.plan_params(), mixture, manifest, out)


def memory(num_documents: int) -> None:
    """Run the measurement in a process of its own."""
    subprocess.run([sys.executable, __file__, "--measure-memory", str(num_documents)], check=True)


def measure_memory(num_documents: int) -> None:
    """Plan documents of made-up lengths, batch after batch, and say what it took."""
    batch = 1 << 20

    def parts() -> Iterator[Plan]:
        for first in range(0, num_documents, batch):
            size = min(batch, num_documents - first)
            yield plan_of(made_up(first, size), first, 16_384)

    tokens = sum(
        int(made_up(first, min(batch, num_documents - first)).sum())
        for first in range(0, num_documents, batch)
    )
    figures = OneSource("all", num_documents, tokens)
    mixture = Batches(MixtureFigures(num_documents, tokens, [figures]), ["all"], parts)
    params = PackParams(sequence_length=2048, strategy="best_fit")
    with tempfile.TemporaryDirectory(prefix="tokmill-packing-") as name:
        begin = time.perf_counter()
        manifest = plan_packing(params.plan_params(), mixture, manifest_of([], END_ID + 1), Path(name))
        wall = time.perf_counter() - begin
        rows = pq.read_metadata(Path(name) / "pieces.parquet").num_rows
    # not getrusage, which would begin with the peak of the process that started this one (Linux)
    status = Path("/proc/self/status").read_text(encoding="ascii")
    peak = int(status.partition("VmHWM:")[2].split()[0]) / 1024
    print(
        f"\nplanned {num_documents:,} documents, {tokens:,} tokens into {manifest.num_sequences:,} sequences "
        f"({rows:,} pieces, {manifest.num_padding_tokens / (manifest.num_sequences * 2048):.4%} padding) in "
        f"{wall:.0f} s; peak memory {peak:.0f} MiB"
    )


def made_up(first: int, size: int) -> np.ndarray:
    """Lengths like those of web pages: log-normal, half of them below 400 tokens."""
    return np.maximum(np.random.default_rng(first).lognormal(6, 1.2, size).astype(np.int64), 1)


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--length", type=int, action="append", help="tokens a sequence; 2,048 and 8,192")
    made.add_argument("--repeat", type=int, default=3)
    made.add_argument("--documents", type=int, default=20_000_000, help="for `memory`")
    made.add_argument("--only", action="append", choices=["planning", "strategies", "disk", "memory"])
    made.add_argument("--data", type=Path, default=SHARED, help="the shared data's folder")
    made.add_argument("--measure-memory", type=int, help=argparse.SUPPRESS)
    given = made.parse_args()
    if given.measure_memory is not None:
        measure_memory(given.measure_memory)
        return
    wanted = given.only or ["planning", "strategies", "disk", "memory"]
    lengths = given.length or [2048, 8192]
    if set(wanted) - {"memory"}:
        documents = encoded(given.data)
    if "strategies" in wanted:
        strategies(documents, lengths)
    if "planning" in wanted:
        planning(documents, lengths, given.repeat)
    if "disk" in wanted:
        disk(documents, lengths, given.repeat)
    if "memory" in wanted:
        memory(given.documents)


if __name__ == "__main__":
    main()
