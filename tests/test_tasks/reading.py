"""Reading files in tests: write bytes, read them as a source does, and return documents as plain lists."""

import bz2
import gzip
import io
import json
import lzma
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lz4.frame
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from tokmill.tasks.core.stage import External, Outcome
from tokmill.tasks.formats.corpus import Corpus
from tokmill.tasks.formats.text.content import Span
from tokmill.tasks.formats.text.detection import format_of
from tokmill.tasks.formats.text.readers import read_file_batches
from tokmill.tasks.formats.text.shards import read_shard
from tokmill.tasks.formats.text.source_files import resolve_files
from tokmill.tasks.formats.text.sources import ReadOptions, SourceSpec
from tokmill.tasks.ingest.stage import IngestParams
from tokmill.tasks.ingest.stage import run as ingest
from tokmill.tasks.store.digest import digest_file

COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda data: data,
    ".gz": lambda data: gzip.compress(data, mtime=0),
    ".zst": lambda data: zstandard.ZstdCompressor().compress(data),
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".lz4": lz4.frame.compress,
}


def written(kind: str, texts: Sequence[Any], *, delimiter: str = "<|end|>", **how: Any) -> bytes:
    """Texts in a format, with ids that count where it has more than texts; `stream` is an Arrow stream.

    `how` says how Parquet and Arrow are written: `text_type`, `compression`, and `rows` of a group.
    """
    if kind in ("parquet", "arrow", "stream"):
        return _columnar(kind, texts, **how)
    if kind in ("jsonl", "json"):
        rows = [json.dumps({"text": text, "id": number}) for number, text in enumerate(texts)]
        return ("".join(f"{row}\n" for row in rows) if kind == "jsonl" else f"[{','.join(rows)}]").encode()
    if kind == "csv":
        quoted = ('"' + text.replace('"', '""') + '"' for text in texts)
        return "".join(["text,id\n", *(f"{text},{number}\n" for number, text in enumerate(quoted))]).encode()
    return (delimiter if kind == "delimited" else "\n").join(texts).encode()


def _columnar(kind: str, texts: Sequence[Any], text_type: Any = None, compression: Any = None, rows: int = 2):
    out, column = io.BytesIO(), pa.array(texts, pa.string())
    table = pa.table({"text": column.cast(text_type or pa.string()), "id": range(len(texts))})
    if kind == "parquet":
        pq.write_table(table, out, compression=compression or "none", row_group_size=rows)
        return out.getvalue()
    new = pa.ipc.new_file if kind == "arrow" else pa.ipc.new_stream
    with new(out, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table, max_chunksize=rows)
    return out.getvalue()


class PlainDigests:
    """Digests of files, without a cache."""

    def digest(self, path: Path) -> str:
        return digest_file(path)


@dataclass(frozen=True)
class Read:
    """The output of a reader: (row, text), (row, reason), and ids."""

    documents: list[tuple[int, bytes]]
    bad: list[tuple[int, str]]
    ids: list[str | None]

    @property
    def texts(self) -> list[bytes]:
        return [text for _, text in self.documents]


def read(path: Path, span: Span | None = None, **options: Any) -> Read:
    """Read a file."""
    chosen = ReadOptions(**options)
    result = Read([], [], [])
    file_format = format_of(path, chosen) if chosen.format == "auto" else chosen.format
    for piece in read_file_batches(path, file_format, chosen, span or Span()):
        assert (piece.offsets[0], piece.offsets[-1]) == (0, len(piece.data))
        result.documents.extend(zip(piece.rows.tolist(), piece.documents(), strict=True))
        result.bad.extend((bad.row, bad.reason) for bad in piece.bad)
        result.ids.extend([] if piece.ids is None else piece.ids.to_pylist())
    return result


@dataclass(frozen=True)
class Ingested:
    """An ingested corpus, the stage's outcome, and the sources' roots and files."""

    corpus: Corpus
    outcome: Outcome
    roots: Mapping[str, str]
    files: Sequence[External]


def ingested(
    folder: Path,
    sources: Mapping[str, Mapping[str, Any]],
    *,
    out: str = "out",
    shard_bytes: int | None = 64 << 10,
    workers: int = 2,
) -> Ingested:
    """Ingest sources, given as in a profile in `folder`."""
    specs = {name: SourceSpec(**spec) for name, spec in sources.items()}
    files: list[External] = []
    roots: dict[str, str] = {}
    for name, spec in specs.items():
        found, roots[name] = resolve_files(spec, folder, PlainDigests(), source=name)
        files += found
    target = folder / out
    target.mkdir()
    options = {name: spec.read_options() for name, spec in specs.items()}
    params = IngestParams(shard_bytes=shard_bytes, sources=options)
    outcome = ingest(params, out=target, files=[file.value for file in files], workers=workers)
    return Ingested(Corpus.open(target), outcome, roots, files)


def documents(made: Ingested, source: str, batch_bytes: int = 1 << 20) -> list[bytes]:
    """The documents of a source, read from its shards."""
    batches = [
        batch
        for shard in made.corpus.shards(source)
        for batch in read_shard(shard, made.roots, batch_bytes=batch_bytes)
    ]
    return [text for batch in batches for text in batch.documents()]


def files_in(folder: Path) -> dict[str, bytes]:
    """The content of every file below a folder, by its path there."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
