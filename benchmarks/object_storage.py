"""Reading sources from object storage beside reading the same files from a folder.

    python benchmarks/object_storage.py [MEGABYTES]

The service is moto's on loopback, a process of its own whose time does not count. Each row is the median of
three alternating runs: CPU seconds of this process (with its threads), and wall seconds, for the digests of
all files, for ingest, and for reading all shards once.
"""

import gzip
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from pathlib import Path

import zstandard

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.object_server import Bucket, serving
from tokmill.tasks.formats.corpus import Corpus
from tokmill.tasks.formats.text.shards import read_shard
from tokmill.tasks.formats.text.source_files import resolve_files
from tokmill.tasks.formats.text.sources import SourceSpec
from tokmill.tasks.ingest.stage import IngestParams
from tokmill.tasks.ingest.stage import run as ingest
from tokmill.tasks.store.digest import FileDigests

RUNS = 3
FILES = 4
COMPRESSIONS: Mapping[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": lambda data: gzip.compress(data, 6),
    ".zst": zstandard.ZstdCompressor().compress,
}


def text_of(megabytes: int) -> bytes:
    generator = random.Random(0)
    words = ["".join(generator.choices("etaoinshrdlu", k=generator.randint(2, 9))) for _ in range(5_000)]
    lines = [f'{{"text": "{" ".join(generator.choices(words, k=150))}"}}\n'.encode() for _ in range(2_000)]
    return b"".join(generator.choices(lines, k=megabytes * 1_000_000 // (sum(map(len, lines)) // 2_000)))


def measured(pattern: str) -> dict[str, tuple[float, float]]:
    """Digest and ingest a source, and read its shards: CPU and wall seconds of each."""
    spent: dict[str, tuple[float, float]] = {}

    @contextmanager
    def timed(name: str):
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        spent[name] = time.process_time() - cpu, time.perf_counter() - wall

    with tempfile.TemporaryDirectory() as folder:
        spec = SourceSpec(files=[pattern], format="jsonl")
        with timed("digests"):
            files, root = resolve_files(spec, Path("/"), FileDigests(Path(folder)), source="s")
        out = Path(folder, "corpus")
        out.mkdir()
        params = IngestParams(shard_bytes=8 << 20, sources={"s": spec.read_options()})
        with timed("ingest"):
            ingest(params, out=out, files=[file.value for file in files])
        with timed("read shards"):
            for shard in Corpus.open(out).shards("s"):
                for _ in read_shard(shard, {"s": root}):
                    pass
    return spent


def main() -> None:
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    data = text_of(megabytes // FILES)
    with serving() as server, tempfile.TemporaryDirectory() as folder:
        # past the proxy, whose time would be this process's
        os.environ |= {**server.environment(), "AWS_ENDPOINT_URL": server.client.meta.endpoint_url}
        for suffix, compress in COMPRESSIONS.items():
            bucket, content = server.make_bucket(), compress(data)
            place = Path(folder, f"jsonl{suffix}")
            place.mkdir()
            for number in range(FILES):
                bucket.put(f"{number}.jsonl{suffix}", content)
                (place / f"{number}.jsonl{suffix}").write_bytes(content)
            show(f"jsonl{suffix}", len(content) * FILES, compared(place, bucket))


def compared(place: Path, bucket: Bucket) -> list[tuple[dict, dict]]:
    return [(measured(f"{place}/*"), measured(f"{bucket.url}/*")) for _ in range(RUNS)]


def show(kind: str, size: int, runs: list[tuple[dict, dict]]) -> None:
    for name in runs[0][0]:
        row = [
            statistics.median(run[side][name][column] for run in runs) for side in (0, 1) for column in (0, 1)
        ]
        ratio = row[2] / row[0] if row[0] else 0.0
        print(
            f"{kind:10} {size / 1e6:6.0f} MB  {name:12} folder {row[0]:6.2f} s CPU {row[1]:6.2f} s   "
            f"objects {row[2]:6.2f} s CPU {row[3]:6.2f} s   CPU ratio {ratio:.2f}"
        )


if __name__ == "__main__":
    main()
