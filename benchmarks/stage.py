"""The encode stage from JSON lines to disk, beside its kernel alone: what reading and writing cost.

    python benchmarks/stage.py                               # 1 GB, shards of 4 MiB as ingest cuts them
    python benchmarks/stage.py --megabytes 200 --shard-mib 64 --repeat 5 --corpus english_docs
    python benchmarks/stage.py --one-document 300            # a single document of 300 MB
    python benchmarks/stage.py --law                         # what the law costs, and nothing else

The text is the shared corpora, line by line, shuffled (seeded) and repeated until there is enough of it; the
vocabulary is cl100k. Every figure is of a process of its own that sees the text for the first time, in turn
and `--repeat` times; medians are shown.

    ingest    `tasks.ingest.stage.run`: the file is read, measured and cut into shards
    read      the shards are read again, as a stage gets them, and nothing is done with them
    kernel    `Tokenizer.encode_buffers` on documents that are in memory already, in one thread
    stage     `tasks.encode.stage.run_shard` for all shards, one after the other

MB are 10^6 bytes of text. CPU time is that of all threads. "its thread" is the one that encodes: its CPU time
is what the clock would show were the machine idle and the other threads never late. The peak is the process'
largest resident set (Linux). The file is in the system's cache; compiling kernels and loading the vocabulary
are not in the times, nor is what a store does on top (digests, flushing, the record). `kernel` and `stage`
must give every id equally often, or nothing is shown.

`--law` measures `kernel` and `stage` with and without the law that every encoding is held to
(`pipeline.model.Law`), which is taken out for this benchmark alone: there is no such option. Shard after
shard is encoded both ways by two encoders with caches of their own, which take turns to have the law and to
be first. Shown are MB per CPU second of the thread that encodes, and what the law adds to its CPU time: the
median over pairs of shards.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

from tokmill.tasks.encode.stage import EncodeParams, run_shard
from tokmill.tasks.formats.corpus import Corpus
from tokmill.tasks.formats.text.shards import Shard, read_shard
from tokmill.tasks.formats.text.sources import ReadOptions
from tokmill.tasks.formats.tokenizer import open_tokenizer
from tokmill.tasks.ingest.stage import IngestParams
from tokmill.tasks.ingest.stage import run as ingest
from tokmill.tasks.train.adopt import AdoptParams
from tokmill.tasks.train.adopt import run as adopt
from tokmill.tokenizer import Tokenizer

SHARED = Path(os.environ.get("TOKMILL_SHARED_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
SOURCE, END, END_ID = "text", "<|endoftext|>", 100_257


class Lawless:
    """A law that everything keeps."""

    def breach(self, *_: object) -> None:
        """Find nothing."""


@dataclass
class Clock:
    """Sums up what is timed."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    thread_seconds: float = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Time a block: by the clock, in CPU time of all threads, and in that of its own thread."""
        started, cpu, thread = time.perf_counter(), time.process_time(), time.thread_time()
        yield
        self.seconds += time.perf_counter() - started
        self.cpu_seconds += time.process_time() - cpu
        self.thread_seconds += time.thread_time() - thread


def lines_of(path: Path) -> list[bytes]:
    """Return the lines of a `.jsonl` or `.jsonl.zst` file, without their newlines."""
    raw = path.read_bytes()
    if path.suffix == ".zst":
        raw = zstandard.ZstdDecompressor().decompressobj().decompress(raw)
    return [line for line in raw.split(b"\n") if line]


def shuffled(lines: list[bytes], num_bytes: int) -> Iterator[bytes]:
    """Yield lines again and again, each time in another order, until there are enough bytes."""
    order = random.Random(0)
    while True:
        order.shuffle(lines)
        for line in lines:
            if num_bytes <= 0:
                return
            yield line
            num_bytes -= len(line)


def write_text(path: Path, options: argparse.Namespace) -> None:
    """Write the text that is encoded."""
    files = sorted((SHARED / "corpora").glob(f"{options.corpus}.jsonl.zst"))
    if not files:
        sys.exit(f"stage: no corpus {options.corpus!r} in {SHARED / 'corpora'}; set TOKMILL_SHARED_DATA")
    lines = [line for file in files for line in lines_of(file)]
    with path.open("wb") as out:
        if options.one_document:
            out.write(b'{"id": "one", "text": "')
            for line in shuffled(lines, options.one_document * 1_000_000):
                out.write(json.dumps(json.loads(line)["text"], ensure_ascii=False).encode()[1:-1])
            out.write(b'"}\n')
        else:
            for line in shuffled(lines, options.megabytes * 1_000_000):
                out.write(line + b"\n")


def ingest_text(folder: Path, shard_mib: int) -> int:
    """Ingest `text.jsonl` of a folder into its `corpus`; return the bytes of text."""
    text, out = folder / "text.jsonl", folder / "corpus"
    out.mkdir(exist_ok=True)
    params = IngestParams(shard_bytes=shard_mib << 20, sources={SOURCE: ReadOptions(id_column="id")})
    file: dict[str, Any] = {"source": SOURCE, "name": text.name, "path": str(text), "digest": "0" * 64}
    file |= {"size": text.stat().st_size, "mtime_ns": text.stat().st_mtime_ns}
    return int(ingest(params, out=out, files=[file]).metrics["num_bytes"])


def encode_shards(folder: Path, tokenizer: Path) -> int:
    """Run the stage on all shards, into `encoded`; return the bytes of text."""
    num_bytes = 0
    for shard in shards_of(folder):
        num_bytes += encode_shard(folder, tokenizer, shard, folder / "encoded" / str(shard.index))
    return num_bytes


def encode_shard(folder: Path, tokenizer: Path, shard: Shard, out: Path) -> int:
    """Run the stage on one shard; return the bytes of text."""
    out.mkdir(parents=True)
    asked = {"shard": shard.model_dump(mode="json"), "roots": {SOURCE: str(folder)}}
    outcome = run_shard(EncodeParams(end_of_document=END), out=out, tokenizer=tokenizer, shard=asked)
    return int(outcome.metrics["num_bytes"])


def shards_of(folder: Path) -> list[Shard]:
    """Return the shards of the folder's corpus."""
    return Corpus.open(folder / "corpus").shards(SOURCE)


def measure_ingest(folder: Path, clock: Clock, shard_mib: int) -> dict[str, Any]:
    """Time ingest."""
    with clock.running():
        return {"num_bytes": ingest_text(folder, shard_mib)}


def measure_read(folder: Path, clock: Clock, _shard_mib: int) -> dict[str, Any]:
    """Time reading alone."""
    num_bytes = 0
    with clock.running():
        for shard in shards_of(folder):
            num_bytes += sum(len(batch.data) for batch in read_shard(shard, {SOURCE: folder}))
    return {"num_bytes": num_bytes}


def measure_kernel(folder: Path, clock: Clock, _shard_mib: int) -> dict[str, Any]:
    """Time encoding alone, shard by shard of documents in memory."""
    encoder = open_tokenizer(folder / "tokenizer")
    counts, num_bytes = np.zeros(encoder.vocab_size, np.int64), 0
    for shard in shards_of(folder):
        for batch in list(read_shard(shard, {SOURCE: folder})):
            with clock.running():
                encoded = encoder.encode_buffers(batch.data, batch.offsets, as_text=True)
            counts += np.bincount(encoded.ids, minlength=len(counts))
            num_bytes += len(batch.data)
    return {"num_bytes": num_bytes, "counts": counts.tolist()}


def measure_stage(folder: Path, clock: Clock, _shard_mib: int) -> dict[str, Any]:
    """Time the stage; the ids' counts do not have the end of document."""
    shutil.rmtree(folder / "encoded", ignore_errors=True)
    with clock.running():
        num_bytes = encode_shards(folder, folder / "tokenizer")
    found = {"num_bytes": num_bytes, "peak_bytes": peak_bytes()}
    counts = np.zeros(END_ID + 1, np.int64)
    for file in sorted((folder / "encoded").glob("*/token_counts.npy")):
        counts += np.load(file).astype(np.int64)
    counts[END_ID] = 0
    return found | {"counts": counts.tolist()}


def measure_law(folder: Path, _clock: Clock, _shard_mib: int) -> dict[str, Any]:
    """Time kernel and stage with and without the law, in turns."""
    paths = [folder / "tokenizer", shutil.copytree(folder / "tokenizer", folder / "other")]
    runners = {
        "kernel": [Tokenizer(open_tokenizer(path).definition) for path in paths],
        "stage": [open_tokenizer(path) for path in paths],
    }
    laws = [runners["kernel"][0]._encoder._encoder.law, Lawless()]
    times: dict[str, list[list[float]]] = {what: [] for what in runners}
    for number, shard in enumerate(shards_of(folder)):
        batches = list(read_shard(shard, {SOURCE: folder}))
        for what, encoders in runners.items():
            if number % 2 == 0:
                times[what].append([0.0, 0.0])
            for law in (0, 1) if number // 2 % 2 else (1, 0):
                which, clock = (law + number) % 2, Clock()  # one may have got better memory than the other
                encoders[which]._encoder._encoder.law = laws[law]
                with clock.running():
                    if what == "stage":
                        encode_shard(folder, paths[which], shard, folder / "held" / f"{law}-{number}")
                    else:
                        for batch in batches:
                            encoders[which].encode_buffers(batch.data, batch.offsets, as_text=True)
                times[what][-1][law] += clock.thread_seconds
    return {"num_bytes": sum(shard.num_bytes for shard in shards_of(folder)), "times": times}


def show_law(found: dict[str, Any]) -> None:
    """Print what the law costs."""
    print("| | with the law, MB a CPU second | without | the law adds |")
    print("| --- | ---: | ---: | ---: |")
    for what, times in found["times"].items():
        speeds = [found["num_bytes"] / 1e6 / sum(column) for column in zip(*times, strict=True)]
        added = statistics.median(held / free for held, free in times) - 1
        print(f"| {what} | {speeds[0]:.0f} | {speeds[1]:.0f} | {100 * added:.1f} % |")


MEASURES: dict[str, Callable[[Path, Clock, int], dict[str, Any]]] = {
    "ingest": measure_ingest,
    "read": measure_read,
    "kernel": measure_kernel,
    "stage": measure_stage,
    "law": measure_law,
}


def peak_bytes() -> int:
    """Return the largest resident set of this process so far, 0 where the system does not say."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


def in_this_process(what: str, folder: Path, shard_mib: int) -> None:
    """Measure one thing and print what was found as JSON; every kernel is called once before."""
    with tempfile.TemporaryDirectory(dir=folder) as small:
        Path(small, "text.jsonl").write_text('{"id": "0", "text": "ready"}\n')
        ingest_text(Path(small), 4)
        encode_shards(Path(small), folder / "tokenizer")
    clock = Clock()
    found = MEASURES[what](folder, clock, shard_mib)
    print(json.dumps({"peak_bytes": peak_bytes()} | found | vars(clock)))


def in_a_process(what: str, folder: Path, shard_mib: int) -> dict[str, Any]:
    """Measure one thing in a process of its own."""
    command = [sys.executable, __file__, "--child", what, str(folder), "--shard-mib", str(shard_mib)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def median(found: list[dict[str, Any]], key: str) -> float:
    """Return the median of a figure."""
    return statistics.median(one[key] for one in found)


def table(found: dict[str, list[dict[str, Any]]]) -> Iterator[str]:
    """Yield the lines of the table: medians of the runs, and of the ratios to the kernel of each round."""
    heads = ["", "wall, s", "CPU, s", "its thread, s", "MB/s", "MB a CPU second", "peak, MB"]
    yield "| " + " | ".join([*heads, "of the kernel's MB/s: wall", "its thread"]) + " |"
    yield "| --- |" + " ---: |" * 8
    for what, ones in found.items():
        times = [median(ones, key) for key in ("seconds", "cpu_seconds", "thread_seconds")]
        megabytes = ones[0]["num_bytes"] / 1e6
        shares = [
            statistics.median(base[key] / one[key] for base, one in zip(found["kernel"], ones, strict=True))
            for key in ("seconds", "thread_seconds")
        ]
        figures = [*times, megabytes / times[0], megabytes / times[1], median(ones, "peak_bytes") / 1e6]
        digits = [2, 2, 2, 0, 0, 0]
        row = [f"{figure:.{places}f}" for figure, places in zip(figures, digits, strict=True)]
        yield "| " + " | ".join([what, *row, *(f"{share:.2f}" for share in shares)]) + " |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1000, help="of JSON lines")
    parser.add_argument("--corpus", default="*", help="name of one of the shared corpora; all by default")
    parser.add_argument("--shard-mib", type=int, default=4, help="as ingest's shard_bytes")
    parser.add_argument("--one-document", type=int, metavar="MB", help="one document, and nothing else")
    parser.add_argument("--law", action="store_true", help="what the law costs, and nothing else")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--child", nargs=2, metavar=("WHAT", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        in_this_process(options.child[0], Path(options.child[1]), options.shard_mib)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tokenizer").mkdir()
        params = AdoptParams(format="tiktoken", split_pattern="cl100k", special_tokens={END: END_ID})
        adopt(params, out=folder / "tokenizer", file=SHARED / "vocabs" / "cl100k_base.tiktoken")
        write_text(folder / "text.jsonl", options)
        if options.law:
            in_a_process("ingest", folder, options.shard_mib)
            show_law(in_a_process("law", folder, options.shard_mib))
            return
        found: dict[str, list[dict[str, Any]]] = {what: [] for what in MEASURES if what != "law"}
        for _ in range(options.repeat):
            for what, ones in found.items():
                ones.append(in_a_process(what, folder, options.shard_mib))
        if any(
            one["counts"] != found["kernel"][0]["counts"]
            for what in ("kernel", "stage")
            for one in found[what]
        ):
            sys.exit("stage: the stage's ids are not the kernel's; nothing is shown")
        print("\n".join(table(found)))


if __name__ == "__main__":
    main()
