"""Our own code beside libraries that do the same: the figures of docs/adr/0014-own-code-or-a-library.md.

    python -m venv bench && bench/bin/pip install . wcmatch pysimdjson rfc8785 canonicaljson
    bench/bin/python benchmarks/libraries.py                # everything
    bench/bin/python benchmarks/libraries.py words json_lines

Sides take turns in one process, and the first round, which compiles and fills caches, does not count.
Figures are medians of the CPU time of all threads, so that other work on the machine matters little. Where
results must be equal, they are compared first. `sorting` gives each side a process, for its peak memory.
"""

import argparse
import hashlib
import os
import resource
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

import numpy as np

SHARED = Path(os.environ.get("TOKMILL_SHARED_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
CORPORA = ("english_docs", "chinese_poetry", "code")
BYTES = 16_000_000
ROW = np.dtype([("key", "<u8"), ("shard", "<u4"), ("document", "<u4"), ("num_tokens", "<u4")])
ROWS_IN_MEMORY = 1 << 21


def compare(title, sides, repeat=5, calls=1):
    """Print each side's median CPU time and the ratio to the first."""
    times = {name: [] for name in sides}
    for turn in range(repeat + 1):
        for name, work in sides.items():
            before = time.process_time()
            for _ in range(calls):
                work()
            if turn:
                times[name].append((time.process_time() - before) / calls)
    first = statistics.median(next(iter(times.values())))
    for name, each in times.items():
        median = statistics.median(each)
        print(f"{title:<34} {name:<24} {median * 1e3:10.3f} ms CPU {median / first:7.2f} x")


def corpus(name):
    """Some lines of a shared corpus, as they are in the file."""
    import zstandard

    with (SHARED / "corpora" / f"{name}.jsonl.zst").open("rb") as file:
        raw = zstandard.ZstdDecompressor().stream_reader(file).read(BYTES)
    return raw[: raw.rindex(b"\n") + 1]


def words():
    """Count words: the kernel, `str.split`, `regex`'s runs of no white space, and its word boundaries."""
    import orjson
    import regex

    from tokmill.tasks.kernels.text_size import text_size

    runs, boundaries = regex.compile(r"\S+"), regex.compile(r"(?w)\b")
    for name in ("english_docs", "chinese_poetry"):
        texts = [orjson.loads(line)["text"] for line in corpus(name)[: BYTES // 2].split(b"\n")[:-1]]
        encoded = [text.encode() for text in texts]
        data = np.frombuffer(b"".join(encoded), np.uint8)
        offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
        sides = {
            "kernel": lambda data=data, offsets=offsets: text_size(data, offsets).num_words,
            "str.split": lambda texts=texts: sum(len(text.split()) for text in texts),
            r"regex \S+": lambda texts=texts: sum(1 for text in texts for _ in runs.finditer(text)),
            r"regex (?w)\b": lambda texts=texts: sum(1 for text in texts for _ in boundaries.finditer(text)),
        }
        print({side: f"{work():,}" for side, work in sides.items()})
        compare(f"words, {name}, {len(data) / 1e6:.1f} MB", sides, repeat=3)


def json_lines():
    """Read the texts of JSON lines into one buffer."""
    import orjson
    import simdjson

    from tokmill.tasks.formats.text.content import Span
    from tokmill.tasks.formats.text.json import read_jsonl
    from tokmill.tasks.formats.text.sources import ReadOptions

    parser = simdjson.Parser()

    def lazily(line):
        return parser.parse(line)["text"]

    def joined(path, text_of):
        texts = [text_of(line).encode() for line in path.read_bytes().split(b"\n") if line]
        np.cumsum([0, *map(len, texts)], dtype=np.int64)
        return b"".join(texts)

    for name in CORPORA:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "part.jsonl")
            path.write_bytes(corpus(name))
            sides = {
                "kernel": lambda path=path: [*read_jsonl(path, Span(), ReadOptions(format="jsonl"))],
                "orjson": lambda path=path: joined(path, lambda line: orjson.loads(line)["text"]),
                "pysimdjson": lambda path=path: joined(path, lazily),
            }
            ours = b"".join(piece.data.tobytes() for piece in sides["kernel"]())
            assert ours == sides["orjson"]() == sides["pysimdjson"]()
            compare(f"json_lines, {name}, {path.stat().st_size / 1e6:.1f} MB", sides)


def globbing():
    """Find the standard library's Python files, without installed packages."""
    from wcmatch import glob

    from tokmill.tasks.formats.text.globs import parse
    from tokmill.tasks.formats.text.walk import expand

    root = sysconfig.get_path("stdlib")
    left_out = [f"**/{name}/**" for name in ("site-packages", "dist-packages", "__pycache__")]
    flags = glob.GLOBSTAR | glob.FOLLOW | glob.NODIR
    sides = {
        "globbing.expand": lambda: sorted(map(str, expand(parse("{stdlib}/**/*.py", Path.cwd())))),
        "wcmatch.glob": lambda: sorted(
            str(Path(root, name))
            for name in glob.glob("**/*.py", flags=flags, root_dir=root, exclude=left_out)
        ),
    }
    assert sides["globbing.expand"]() == sides["wcmatch.glob"]()
    compare("globbing, {stdlib}/**/*.py", sides)


def canonical():
    """Write a recipe of the usual size as canonical JSON."""
    import canonicaljson
    import rfc8785

    from tokmill.tasks.store.fingerprint import canonical_json

    params = {
        "temperature": 2.0,
        "seed": 7,
        "weights": {"web": 0.6, "code": 1e-7},
        "schedule": [[0, {"a": 1.0}]] * 20,
    }
    recipe = {"stage": "mix", "version": 4, "params": params, "inputs": {"encoded": "f" * 64}}
    writers = {
        "canonical_json": canonical_json,
        "rfc8785": rfc8785.dumps,
        "canonicaljson": canonicaljson.encode_canonical_json,
    }
    for name, write in writers.items():
        print(f"{name:<16} {write({'values': [1, 1.0, 1e16, -0.0]})}")
    compare(
        "canonical", {name: lambda write=write: write(recipe) for name, write in writers.items()}, calls=200
    )


def locks():
    """Take a lock that is free, and let it go."""
    from filelock import FileLock

    from tokmill.tasks.store.disk import ProcessLock

    with tempfile.TemporaryDirectory() as folder:

        def taken(lock):
            lock.acquire()
            lock.release()

        sides = {
            "ProcessLock": lambda: taken(ProcessLock(Path(folder, "ours"))),
            "FileLock": lambda: taken(FileLock(Path(folder, "theirs"))),
        }
        compare("locks", sides, calls=300)
        print("left behind:", [path.name for path in Path(folder).iterdir()])


def blocks(seed, num_rows):
    """Rows with keys by chance, a million at a time."""
    random = np.random.default_rng(seed)
    for first in range(0, num_rows, 1 << 20):
        rows = np.zeros(min(1 << 20, num_rows - first), ROW)
        rows["key"] = random.integers(0, 1 << 63, len(rows), dtype=np.uint64)
        rows["document"] = np.arange(first, first + len(rows))
        yield rows


def by_duckdb(connection, rows):
    """The same as `sorted_rows`, by DuckDB: equal keys keep their order through a number for each row."""
    import pyarrow as pa

    fields = [(name, pa.from_numpy_dtype(ROW[name])) for name in ROW.names]
    schema = pa.schema([*fields, ("place", pa.uint64())])

    def batches():
        first = 0
        for block in rows:
            columns = [pa.array(np.ascontiguousarray(block[name])) for name in ROW.names]
            places = pa.array(np.arange(first, first + len(block), dtype=np.uint64))
            yield pa.record_batch([*columns, places], schema=schema)
            first += len(block)

    cursor = connection.cursor()
    cursor.register("given", pa.RecordBatchReader.from_batches(schema, batches()))
    ordered = cursor.sql("SELECT * EXCLUDE (place) FROM given ORDER BY key, place")
    for batch in ordered.to_arrow_reader(1 << 16):
        block = np.empty(len(batch), ROW)
        for index, name in enumerate(ROW.names):
            block[name] = batch.column(index).to_numpy()
        yield block


def sort_in_turns(side, num_sorters, num_rows, limit):
    """Sort with several sorters, a block of each in turn, as mixing does, and print what it took."""
    from tokmill.tasks.core.database import connect
    from tokmill.tasks.mixing.sorting import Scratch, sorted_rows

    with tempfile.TemporaryDirectory() as folder:
        scratch = Scratch(Path(folder), kept_rows=ROWS_IN_MEMORY // num_sorters)
        for _ in sorted_rows([np.zeros(10, ROW)], scratch):
            pass  # compiles
        connection = connect(threads=1, memory_limit=limit, temp_directory=folder)
        before = time.process_time()
        given = [blocks(seed, num_rows) for seed in range(num_sorters)]
        waiting = [
            sorted_rows(rows, scratch) if side == "own" else by_duckdb(connection, rows) for rows in given
        ]
        digests = [hashlib.blake2b(digest_size=8) for _ in waiting]
        going = dict(enumerate(waiting))
        while going:
            for place in list(going):
                block = next(going[place], None)
                if block is None:
                    del going[place]
                else:
                    digests[place].update(block.tobytes())
        seconds = time.process_time() - before
    digest = hashlib.blake2b(b"".join(each.digest() for each in digests), digest_size=8).hexdigest()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{seconds:6.2f} s CPU, peak {peak:4.0f} MB, digest {digest}")


def sorting():
    """Sort more rows than fit: one sorter, and forty side by side."""
    for num_sorters, num_rows in ((1, 12_000_000), (40, 200_000)):
        for side, limit in (("own", ""), ("duckdb", "128MB"), ("duckdb", "1GB")):
            call = f"sort_in_turns({side!r}, {num_sorters}, {num_rows}, {limit or '1GB'!r})"
            code = f"import libraries; libraries.{call}"
            done = subprocess.run(
                [sys.executable, "-c", code],
                cwd=Path(__file__).parent,
                capture_output=True,
                text=True,
                check=False,
            )
            out = done.stdout or next(line for line in done.stderr.splitlines() if "Error" in line) + "\n"
            print(f"sorting, {num_sorters} x {num_rows:,} rows, {side} {limit:<6} {out}", end="")


PARTS = {part.__name__: part for part in (words, json_lines, globbing, canonical, locks, sorting)}

if __name__ == "__main__":
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument(
        "parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all if none is named"
    )
    for part in arguments.parse_args().parts or PARTS:
        PARTS[part]()
