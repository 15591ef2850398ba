"""Documents in objects: the same as in files, whatever the sizes of ranges, and through lost connections.

Ranges are tried on fsspec's file system in memory; what a network does, on a real S3 server.
"""

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import fsspec
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.faulty_proxy import Fault
from tests.object_server import Bucket
from tests.test_tasks.reading import COMPRESSORS, Read, read, written
from tokmill.tasks.core.errors import MachineError, SourceError
from tokmill.tasks.formats.corpus import Corpus
from tokmill.tasks.formats.text.content import Span
from tokmill.tasks.formats.text.shards import Shard, read_shard
from tokmill.tasks.formats.text.source_files import resolve_files
from tokmill.tasks.formats.text.sources import SourceSpec
from tokmill.tasks.ingest.stage import IngestParams
from tokmill.tasks.ingest.stage import run as ingest
from tokmill.tasks.remote import objects as streaming
from tokmill.tasks.remote.location import RemoteFile
from tokmill.tasks.store.digest import FileDigests
from tokmill.tokenizer.core.stopping import StopRequested, allow_work, request_stop

ANY_FIXTURE = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
SUFFIXES = {
    "lines": ".txt", "text": ".txt", "delimited": ".txt", "jsonl": ".jsonl", "json": ".json", "csv": ".csv",
    "parquet": ".parquet", "arrow": ".arrow", "stream": ".arrow",
}  # fmt: skip


def options(kind: str) -> dict[str, str]:
    form = "arrow" if kind == "stream" else kind
    return {"format": form, "on_error": "quarantine"} | (
        {"delimiter": "<|end|>"} if kind == "delimited" else {}
    )


@contextmanager
def ranges(first: int, largest: int, ahead: int) -> Iterator[None]:
    """Read in ranges of other sizes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streaming, "FIRST_PART_BYTES", first)
        patch.setattr(streaming, "PART_BYTES", largest)
        patch.setattr(streaming, "AHEAD", ahead)
        yield


class Memory(NamedTuple):
    """Objects without a server."""

    url: str

    def put(self, key: str, data: bytes) -> None:
        """Write an object."""
        fsspec.filesystem("memory").pipe(f"{self.url}/{key}", data)


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    """An empty folder of the file system in memory."""
    return Memory(f"memory://{tmp_path.name}")


def judged(place: Path | RemoteFile, kind: str) -> Read | str:
    """Read a file or an object; what is wrong with it if it is refused, as CSV that ends in its header is."""
    try:
        return read(place, **options(kind))
    except SourceError as error:
        return str(error)


@given(
    texts=st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=40), max_size=8),
    kind=st.sampled_from(list(SUFFIXES)),
    compression=st.sampled_from(list(COMPRESSORS)),
    cut=st.integers(0, 100),
    first=st.integers(20, 90),
    largest=st.integers(20, 300),
    ahead=st.integers(1, 4),
)
@settings(max_examples=60, suppress_health_check=ANY_FIXTURE)
def test_any_documents_whole_or_damaged(
    memory: Memory, tmp_path_factory: pytest.TempPathFactory, texts: list[str], kind: str, compression: str,
    cut: int, first: int, largest: int, ahead: int,
) -> None:  # fmt: skip
    """A file that ends early is judged in the same way wherever it is."""
    whole = COMPRESSORS[compression](written(kind, texts))
    data = whole if cut % 2 else whole[: len(whole) * cut // 100]
    file = tmp_path_factory.mktemp("files") / f"a{SUFFIXES[kind]}{compression}"
    file.write_bytes(data)
    memory.put(file.name, data)

    with ranges(first, largest, ahead):
        assert judged(RemoteFile(f"{memory.url}/{file.name}"), kind) == judged(file, kind)


def test_a_span_of_a_file_fetches_that_span_alone(bucket: Bucket) -> None:
    line = b"x" * 99 + b"\n"
    bucket.put("a.txt", line * 10_000)

    found = read(
        RemoteFile(f"{bucket.url}/a.txt"), Span(5_000, 10, 500_000, 501_000, codec=None), format="lines"
    )

    assert len(found.documents) == 10
    assert bucket.num_sent() == 1_000


def test_only_the_column_and_the_row_groups_that_are_needed_are_fetched(bucket: Bucket) -> None:
    number = 4_000
    table = pa.table(
        {"text": [f"text {i}" for i in range(number)], "heavy": [f"{i:0500}" for i in range(number)]}
    )
    buffer = io.BytesIO()
    pq.write_table(table, buffer, row_group_size=100, use_dictionary=False, compression="none")
    bucket.put("a.parquet", buffer.getvalue())

    found = read(RemoteFile(f"{bucket.url}/a.parquet"), Span(1_000, 200), format="parquet")

    assert [row for row, _ in found.documents] == list(range(1_000, 1_200))
    assert bucket.num_sent() < len(buffer.getvalue()) // 20


@pytest.mark.parametrize(("kind", "compression"), [("lines", ""), ("lines", ".zst"), ("parquet", "")])
def test_lost_connections_are_taken_up_again(
    bucket: Bucket, tmp_path: Path, kind: str, compression: str
) -> None:
    data = COMPRESSORS[compression](written(kind, [f"text {number:050}" for number in range(2_000)]))
    name = f"a{SUFFIXES[kind]}{compression}"
    bucket.fault("cut", method="GET", key=name, num_bytes=200, times=2)
    bucket.fault("answer", method="GET", key=name, status=503)
    bucket.fault("answer", method="HEAD", key=name, status=500)

    (tmp_path / name).write_bytes(data)
    bucket.put(name, data)

    with ranges(1_000, 5_000, 2):
        remote = read(RemoteFile(f"{bucket.url}/{name}"), **options(kind))

    assert remote == read(tmp_path / name, **options(kind))
    assert len(remote.documents) == 2_000


@pytest.mark.parametrize(
    ("kind", "compression"), [*((kind, "") for kind in SUFFIXES), ("jsonl", ".gz"), ("parquet", ".gz")]
)
def test_a_network_that_stays_away_is_no_bad_document(
    bucket: Bucket, kind: str, compression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKMILL_RETRY_SECONDS", "0.1")
    data = COMPRESSORS[compression](written(kind, [f"text {number:050}" for number in range(300)]))
    key = f"a{SUFFIXES[kind]}{compression}"
    bucket.put(key, data)
    num_ranges = 2 if kind in ("parquet", "arrow", "stream") and not compression else 1

    bucket.fault("cut", method="GET", key=key, num_bytes=3, times=None, skip=num_ranges)

    with ranges(200, 200, 1), pytest.raises(MachineError, match="check the network and the service"):
        read(RemoteFile(f"{bucket.url}/{key}"), **options(kind))


@pytest.mark.parametrize(("status", "words"), [(403, "refuses"), (404, "restore the file")])
@pytest.mark.parametrize("method", ["HEAD", "GET"])
def test_what_is_refused_or_missing_is_asked_for_once(
    bucket: Bucket, status: int, words: str, method: str
) -> None:
    bucket.put("a.jsonl", b'{"text": ""}\n')
    bucket.fault("answer", method=method, key="a.jsonl", status=status, times=None)

    with pytest.raises(SourceError, match=words):
        read(RemoteFile(f"{bucket.url}/a.jsonl"), format="jsonl", on_error="quarantine")

    assert len(bucket.requests(method)) == 1


@pytest.mark.parametrize("kind", ["lines", "parquet"])
def test_an_object_that_changes_in_the_middle_is_noticed(bucket: Bucket, kind: str) -> None:
    data = written(kind, [f"text {number:050}" for number in range(2_000)])
    key = f"a{SUFFIXES[kind]}"
    bucket.put(key, data)

    held = bucket.fault("hold", method="GET", key=key, skip=1)
    replacing = threading.Thread(target=_replace_once, args=(bucket, held, key, data[:-1] + b"!"))
    replacing.start()

    with ranges(1_000, 1_000, 1), pytest.raises(SourceError, match="changed while it was read"):
        read(RemoteFile(f"{bucket.url}/{key}"), **options(kind))
    replacing.join()


def _replace_once(bucket: Bucket, held: Fault, key: str, data: bytes) -> None:
    assert held.arrived.wait(60)
    bucket.put(key, data)
    held.release()


def corpus_of(bucket: Bucket, folder: Path) -> tuple[Corpus, str]:
    """Ingest all objects of a bucket, with shards of 64 KiB."""
    spec = SourceSpec(files=[f"{bucket.url}/**/*"], format="jsonl")
    files, root = resolve_files(spec, Path("/"), FileDigests(folder), source="web")
    out = folder / "corpus"
    out.mkdir()
    params = IngestParams(shard_bytes=64 << 10, sources={"web": spec.read_options()})
    ingest(params, out=out, files=[file.value for file in files])
    return Corpus.open(out), root


def texts_of(shard: Shard, root: str) -> list[bytes]:
    return [text for batch in read_shard(shard, {"web": root}) for text in batch.documents()]


def test_a_shard_reads_its_part_and_notices_changes(bucket: Bucket, tmp_path: Path) -> None:
    texts = [f"text {number:0100}" for number in range(5_000)]
    data = written("jsonl", texts)
    bucket.put("web/a.jsonl", data)
    corpus, root = corpus_of(bucket, tmp_path)
    shards = corpus.shards("web")
    assert len(shards) > 4

    before = bucket.num_sent()
    assert len(texts_of(shards[2], root)) == shards[2].num_documents
    assert bucket.num_sent() - before == sum(part.end - part.start for part in shards[2].segments)
    assert [text.decode() for shard in shards for text in texts_of(shard, root)] == texts

    bucket.put("web/a.jsonl", data.replace(b"text", b"TEXT"))
    with pytest.raises(SourceError, match="changed since ingest"):
        texts_of(shards[2], root)
    bucket.delete("web/a.jsonl")
    with pytest.raises(SourceError, match=r"shard web/2.*restore the file"):
        texts_of(shards[2], root)


def test_a_read_that_hangs_is_stopped(bucket: Bucket) -> None:
    bucket.put("a.txt", b"line\n" * 1_000)
    held = bucket.fault("hold", method="GET", key="a.txt", skip=1)

    def stop() -> None:
        assert held.arrived.wait(60)
        request_stop()

    stopping = threading.Thread(target=stop)
    stopping.start()
    try:
        with ranges(100, 100, 2), pytest.raises(StopRequested):
            read(RemoteFile(f"{bucket.url}/a.txt"), format="lines")
    finally:
        allow_work()
        held.release()
        stopping.join()


def test_a_web_server_gives_files_without_listing_them(tmp_path: Path, bucket: Bucket) -> None:
    texts = [f"text {number}" for number in range(100)]
    bucket.put("a.jsonl.zst", COMPRESSORS[".zst"](written("jsonl", texts)))
    bucket.server.client.put_object_acl(Bucket=bucket.name, Key="a.jsonl.zst", ACL="public-read")
    url = f"{bucket.server.proxy.url}/{bucket.name}/a.jsonl.zst"

    found, root = resolve_files(SourceSpec(files=[url]), Path("/"), FileDigests(tmp_path), source="web")

    assert root == f"{bucket.server.proxy.url}/{bucket.name}"
    assert [one.value["name"] for one in found] == ["a.jsonl.zst"]
    assert [text.decode() for text in read(RemoteFile(url), format="jsonl").texts] == texts
    with pytest.raises(SourceError, match="the server has no such file"):
        resolve_files(SourceSpec(files=[f"{root}/none.txt"]), Path("/"), FileDigests(tmp_path), source="web")
