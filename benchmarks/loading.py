"""Feeding batches: `PackedDataset` against nanoGPT's memmap, Megatron-LM's reader and `datasets`.

    python -m venv bench && bench/bin/pip install . torch datasets megatron-core
    bench/bin/python benchmarks/loading.py                # 256 MB of tokens, sequences of 2,048, 16 a batch
    bench/bin/python benchmarks/loading.py --megabytes 2000 --length 8192 --batch 4 --repeat 5

The same sequences are written by everyone's own writer: ours by the packing stages, Megatron's by its
`IndexedDatasetBuilder`, Hugging Face's by `Dataset.save_to_disk`, nanoGPT's with `ndarray.tofile`. Every side
gives one epoch of batches, int64 torch tensors [batch, length], in the same order; all of them are compared
before any time counts. Ours gives uint16 arrays, too, for those who widen them on the accelerator, and these
with four more fields for each number of `--threads` and by two workers of torch's DataLoader, start included
(CPU time is of this process alone). Then the sides take turns. Files are in the page cache, so what is
measured is the reader and not the disk. Side by side stand the least wall clock and the least CPU time of
`--repeat` rounds; `copy` is what widening all tokens with numpy, in order, takes: the memory's own pace.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import torch
from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder

from tokmill.tasks.encode.encoding import write_shard
from tokmill.tasks.formats.encoded import EncodedManifest, EncodedStatistics, ShardEntry, SourceEntry
from tokmill.tasks.loading import PackedDataset
from tokmill.tasks.mixing.stage import MIX, MixParams
from tokmill.tasks.packing.stage import PACK, PACK_PLAN, PACK_SHARD, PackParams
from tokmill.tasks.store.digest import digest_folder

VOCAB_SIZE = 50_304
FIVE = ("input_ids", "position_ids", "segment_ids", "loss_mask", "labels")
Batches = Iterator[Any]
Side = Callable[[np.ndarray], Batches]


@dataclass(frozen=True)
class Work:
    """What is fed: the sequences, and their order."""

    folder: Path
    rows: np.ndarray
    batch: int
    shuffle: bool

    @property
    def length(self) -> int:
        return self.rows.shape[1]

    def order(self) -> np.ndarray:
        """The sequences' numbers in the order of the epoch, so many as full batches have."""
        dataset = PackedDataset(self.folder / "packed", batch_size=1, shuffle=self.shuffle)
        numbers = np.concatenate([batch["sequence"] for batch in dataset])
        return numbers[: len(numbers) // self.batch * self.batch]


def pack(folder: Path, num_tokens: int, length: int) -> None:
    """Write documents of random tokens as an encoded shard, and pack them."""
    random = np.random.default_rng(0)
    lengths = np.minimum(random.lognormal(6.5, 1.2, size=num_tokens // 500).astype(np.int64) + 1, 100_000)
    lengths = lengths[: int(np.searchsorted(np.cumsum(lengths), num_tokens))]
    tokens = random.integers(0, VOCAB_SIZE, size=int(lengths.sum()), dtype=np.uint16)
    shard, encoded = folder / "shard", folder / "encoded"
    for path in (shard, encoded):
        path.mkdir()
    statistics = EncodedStatistics(num_documents=len(lengths), num_tokens=len(tokens))
    with write_shard(shard, VOCAB_SIZE) as writer:
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        writer.append(tokens, offsets, np.arange(len(lengths)), statistics)
    entry = ShardEntry(
        index=0, digest=digest_folder(shard), num_documents=len(lengths), num_tokens=len(tokens)
    )
    source = SourceEntry(source="random", statistics=statistics, shards=[entry])
    manifest = EncodedManifest(
        tokenizer="0" * 64, dtype="uint16", vocab_size=VOCAB_SIZE, end_of_document_id=None, sources=[source]
    )
    (encoded / "encoded.json").write_text(manifest.model_dump_json())
    inputs = {"encoded": encoded, "shards": [shard]}
    params = PackParams(sequence_length=length)
    run(MIX, MixParams(), folder / "mixture", **inputs)
    planned = run(PACK_PLAN, params.plan_params(), folder / "plan", mixture=folder / "mixture", **inputs)
    parts = [folder / f"part-{index}" for index in range(int(planned.metrics["num_shards"]))]
    for index, part in enumerate(parts):
        run(PACK_SHARD, params.shard_params(index), part, plan=folder / "plan", **inputs)
    run(PACK, params, folder / "packed", plan=folder / "plan", shards=parts)


def run(stage: Any, params: Any, out: Path, **inputs: Any) -> Any:
    """Run a stage in a directory of its own."""
    out.mkdir()
    return stage.run(params, out=out, **inputs)


def write_for_others(folder: Path, rows: np.ndarray) -> None:
    """Write the same sequences with everyone's own writer."""

    rows.tofile(folder / "nanogpt.bin")
    builder = IndexedDatasetBuilder(str(folder / "megatron.bin"), dtype=np.uint16)
    for row in rows:
        builder.add_document(torch.from_numpy(row.astype(np.int32)), [len(row)])
    builder.finalize(str(folder / "megatron.idx"))
    offsets = pa.array(np.arange(len(rows) + 1) * rows.shape[1], type=pa.int64())
    column = pa.LargeListArray.from_arrays(offsets, pa.array(rows.reshape(-1).astype(np.int32)))
    table = datasets.table.InMemoryTable(pa.table({"input_ids": column}))
    datasets.Dataset(table).save_to_disk(folder / "huggingface", max_shard_size="500MB")


def tokmill(
    work: Work, num_threads: int, dtype: str, fields: Sequence[Any] = ("input_ids",), num_workers: int = 0
) -> Side:
    """Our own reader, as tensors, or as arrays where tokens stay as they are; it knows its order itself."""
    dataset = PackedDataset(
        work.folder / "packed",
        batch_size=work.batch,
        shuffle=work.shuffle,
        remainder="drop",
        num_threads=num_threads,
        dtype=dtype,
        fields=fields,
    )
    batches_of = dataset.to_torch() if dtype == "int64" else dataset

    def batches(order: np.ndarray) -> Batches:
        batches_of.load_state_dict(dataset.state_dict() | {"epoch": 0, "position": 0})
        workers = {"batch_size": None, "num_workers": num_workers}
        given = torch.utils.data.DataLoader(batches_of, **workers) if num_workers else batches_of
        return (batch["input_ids"] for batch in given)

    return batches


def nanogpt(work: Work) -> Side:
    """As its `get_batch` does: the file mapped again for every batch, a slice and a cast a row, a stack."""
    length = work.length

    def batches(order: np.ndarray) -> Batches:
        for at in range(0, len(order), work.batch):
            data = np.memmap(work.folder / "nanogpt.bin", dtype=np.uint16, mode="r")
            starts = (order[at : at + work.batch] * length).tolist()
            yield torch.stack([torch.from_numpy(data[i : i + length].astype(np.int64)) for i in starts])

    return batches


def megatron(work: Work) -> Side:
    """Its memory-mapped `IndexedDataset`, a call a sequence, as `GPTDataset` and its loader use it."""

    indexed = IndexedDataset(str(work.folder / "megatron"))

    def batches(order: np.ndarray) -> Batches:
        for at in range(0, len(order), work.batch):
            numbers = order[at : at + work.batch].tolist()
            yield torch.stack([torch.from_numpy(indexed.get(k).astype(np.int64)) for k in numbers])

    return batches


def huggingface(work: Work) -> Side:
    """A memory-mapped Arrow dataset with its torch format, a batch of rows at a time."""

    dataset = datasets.load_from_disk(str(work.folder / "huggingface")).with_format("torch")

    def batches(order: np.ndarray) -> Batches:
        for at in range(0, len(order), work.batch):
            numbers = order[at : at + work.batch]
            rows = dataset[at : at + work.batch] if not work.shuffle else dataset[numbers]
            yield rows["input_ids"]

    return batches


def copy(work: Work) -> Side:
    """Copies and widens all tokens, in order, as the memory allows."""

    def batches(order: np.ndarray) -> Batches:
        for at in range(0, len(order), work.batch):
            yield torch.from_numpy(work.rows[at : at + work.batch].astype(np.int64))

    return batches


def check(name: str, side: Side, work: Work, order: np.ndarray) -> None:
    """Stop the program unless a side gives what it should, to the last token."""
    expected = np.arange(len(order)) if name == "copy" else order
    at = 0
    for batch in side(order):
        if not np.array_equal(np.asarray(batch), work.rows[expected[at : at + work.batch]]):
            sys.exit(f"{name}: the batch at {at} holds other tokens; nothing was measured")
        at += len(batch)
    if at != len(order):
        sys.exit(f"{name}: {at} sequences instead of {len(order)}; nothing was measured")


def best(sides: dict[str, Side], order: np.ndarray, repeat: int) -> dict[str, tuple[float, float]]:
    """Run the sides in turn; give each one's least wall clock and least CPU time."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for _ in range(repeat):
        for name, side in sides.items():
            wall, cpu = time.perf_counter(), time.process_time()
            for _ in side(order):
                pass
            times[name].append((time.perf_counter() - wall, time.process_time() - cpu))
    return {name: (min(t[0] for t in found), min(t[1] for t in found)) for name, found in times.items()}


def measure(work: Work, repeat: int, threads: Sequence[int]) -> None:
    """Print the rows of one order."""
    sides = {
        "tokmill": tokmill(work, 1, "int64"),
        "tokmill, no thread": tokmill(work, 0, "int64"),
        "tokmill, no thread, uint16": tokmill(work, 0, "stored"),
        "nanoGPT": nanogpt(work),
        "Megatron-LM": megatron(work),
        "datasets": huggingface(work),
        "copy": copy(work),
    } | {f"tokmill, five fields, threads: {n}": tokmill(work, n, "stored", FIVE) for n in threads}
    sides["tokmill, five fields, DataLoader"] = tokmill(work, 1, "int64", FIVE, num_workers=2)
    order = work.order()
    for name, side in sides.items():
        check(name, side, work, order)
    found = best(sides, order, repeat)
    num_tokens = len(order) * work.length
    ours = found["tokmill"]
    for name, (wall, cpu) in found.items():
        how = "shuffled" if work.shuffle else "in order"
        speeds = f"{num_tokens / wall / 1e6:,.0f} | {num_tokens / cpu / 1e6:,.0f}"
        print(f"| {how} | {name} | {speeds} | {wall / ours[0]:.1f}× | {cpu / ours[1]:.1f}× |", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=256, help="of tokens, two bytes each")
    parser.add_argument("--length", type=int, default=2048, help="tokens a sequence")
    parser.add_argument("--batch", type=int, default=16, help="sequences a batch")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--threads", type=int, nargs="*", default=[0, 1, 2, 4])
    options = parser.parse_args()
    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory(prefix="tokmill-loading-") as name:
        folder = Path(name)
        pack(folder, options.megabytes * 500_000, options.length)
        dataset = PackedDataset(folder / "packed", batch_size=256)
        rows = np.concatenate([batch["input_ids"] for batch in dataset])
        write_for_others(folder, rows)
        print("| order | reader | M tokens/s | M tokens/CPU s | time | CPU time |")
        print("| --- | --- | ---: | ---: | ---: | ---: |")
        for shuffle in (False, True):
            measure(Work(folder, rows, options.batch, shuffle), options.repeat, options.threads)


if __name__ == "__main__":
    main()
