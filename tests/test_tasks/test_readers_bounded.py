"""Documents beyond the limit, in every format: they are bad, take little memory, and change no others."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.test_tasks.reading import COMPRESSORS, ingested, read
from tokmill.tasks.core.errors import DocumentError, SourceError

TEXTS = ["one", "x" * 40_000, "two", "y" * 300_000, "z" * 1000]
LIMIT = 1100


def write_lines(path: Path) -> None:
    path.write_text("".join(f"{text}\n" for text in TEXTS))


def write_jsonl(path: Path) -> None:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))


def write_parquet(path: Path) -> None:
    pq.write_table(pa.table({"text": TEXTS}), path)


def write_arrow(path: Path) -> None:
    table = pa.table({"text": TEXTS})
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table)


WRITERS: dict[str, tuple[Callable[[Path], None], dict[str, Any]]] = {
    "a.txt": (write_lines, {"format": "lines"}),
    "b.txt": (write_lines, {"format": "delimited", "delimiter": "\n"}),
    "a.jsonl": (write_jsonl, {}),
    "a.parquet": (write_parquet, {}),
    "a.arrow": (write_arrow, {}),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_document_that_is_too_long_is_bad_and_the_others_are_kept(tmp_path: Path, name: str) -> None:
    write, options = WRITERS[name]
    write(tmp_path / name)

    found = read(tmp_path / name, max_document_bytes=LIMIT, **options)

    assert found.documents == [(0, b"one"), (2, b"two"), (4, b"z" * 1000)]
    assert found.bad == [(1, "too_long"), (3, "too_long")]
    with pytest.raises(
        DocumentError, match=r"row 1 .*too_long \(over 1,100 bytes\): '.*xxx.*max_document_bytes"
    ):
        ingested(tmp_path, {"s": {"files": [name], "max_document_bytes": LIMIT, **options}})


@pytest.mark.parametrize("length", [9, 10, 11])
def test_the_limit_itself_is_allowed(tmp_path: Path, length: int) -> None:
    (tmp_path / "a.txt").write_text("x" * length)
    (tmp_path / "b.txt").write_text("x" * length + "\nab\n")
    (tmp_path / "c.jsonl").write_text(
        json.dumps({"text": "x" * length}) + "\n" + json.dumps({"text": ""}) + "\n"
    )
    is_long = [(0, "too_long")] if length > 10 else []

    assert read(tmp_path / "a.txt", max_document_bytes=10).bad == is_long
    assert read(tmp_path / "b.txt", max_document_bytes=10, format="lines").bad == is_long
    assert read(tmp_path / "c.jsonl", max_document_bytes=10 + len('{"text": ""}')).bad == is_long


def test_a_file_that_is_too_long_is_one_bad_document(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x" * 2000)
    (tmp_path / "a.py").write_text(f'"""Doc."""\n# {"x" * 2000}\n')

    assert read(tmp_path / "a.txt", max_document_bytes=LIMIT).bad == [(0, "too_long")]
    assert read(tmp_path / "a.py", max_document_bytes=LIMIT, format="prose").bad == [(0, "too_long")]


def test_a_quote_that_is_never_closed_ends_a_csv(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('text,id\none,1\n"two,2\n' + "x,3\n" * 1000)

    found = read(path, max_document_bytes=LIMIT)

    assert found.documents == [(0, b"one")]
    assert found.bad == [(1, "too_long")]
    assert read(path).bad == [(1, "broken_csv")]


CHILD = """
import resource, sys
from pathlib import Path
from tests.test_tasks.reading import read
options = {"format": "lines"} if sys.argv[2] == "lines" else {}
small = read(Path(sys.argv[1]).with_name("small" + Path(sys.argv[1]).suffix), **options)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = read(Path(sys.argv[1]), max_document_bytes=1 << 20, **options)
taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(taken, found.bad, [row for row, _ in found.documents])
"""


@pytest.mark.slow
@pytest.mark.parametrize("codec", [suffix for suffix in COMPRESSORS if suffix])
@pytest.mark.parametrize("file_format", ["text", "lines"])
def test_a_bomb_takes_little_memory(tmp_path: Path, codec: str, file_format: str) -> None:
    compress = COMPRESSORS[codec]
    bomb = tmp_path / f"bomb{codec}"
    bomb.write_bytes(compress(bytes(16 << 20)) * 8 + compress(b"\nshort\n"))
    (tmp_path / f"small{codec}").write_bytes(compress(b"a\nb\n" * 1000))

    command = [sys.executable, "-c", CHILD, str(bomb), file_format]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    kilobytes, said = done.stdout.split(" ", 1)
    assert int(kilobytes) < 40_000  # of 131,072
    assert said == f"[(0, 'too_long')] {[1] if file_format == 'lines' else []}\n"


@pytest.mark.parametrize("column", ["text", "id"])
def test_two_columns_of_one_name_are_refused(tmp_path: Path, column: str) -> None:
    names = {"text": ["text", "text", "id"], "id": ["id", "text", "id"]}[column]
    table = pa.table([["a"], ["b"], ["c"]], names=names)
    pq.write_table(table, tmp_path / "a.parquet")
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as writer:
        writer.write_table(table)
    (tmp_path / "a.csv").write_text(",".join(names) + "\na,b,c\n")

    for name in ("a.parquet", "a.arrow", "a.csv"):
        with pytest.raises(SourceError, match=f"{column}_column='{column}' names 2 of its columns"):
            read(tmp_path / name, id_column="id")


def test_a_name_with_a_dot_is_not_a_part_of_a_column(tmp_path: Path) -> None:
    table = pa.table({"a.b": ["right"], "a": [{"b": "wrong"}]})
    pq.write_table(table, tmp_path / "a.parquet")

    try:
        assert read(tmp_path / "a.parquet", text_column="a.b").texts == [b"right"]
    except SourceError as error:
        assert "several columns" in str(error)  # noqa: PT017 - either is right, another text is not


@pytest.mark.parametrize(
    "rest", [b'"id":' + b"[" * 500 + b"]" * 500, b'"x":' + b"[" * 200_000, b'"x":' + b'{"a":' * 200_000]
)
def test_deep_json(tmp_path: Path, rest: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text":"a",' + rest + b'}\n{"text":"b","id":3}\n')

    found = read(path, id_column="id")

    assert found.documents[-1] == (1, b"b")
    assert found.bad in ([], [(0, "broken_json")])
    assert len(found.documents) + len(found.bad) == 2


def arrow_with_offsets(path: Path, offsets: list[int], indices: list[int] | None = None) -> None:
    buffers = [None, pa.array(offsets, pa.int32()).buffers()[1], pa.py_buffer(b"abcdef")]
    texts = pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)
    if indices is not None:
        of = pa.array(indices, pa.int32()).buffers()
        texts = pa.DictionaryArray.from_arrays(
            pa.Array.from_buffers(pa.int32(), len(indices), of), texts, safe=False
        )
    batch = pa.RecordBatch.from_arrays([texts], ["text"])
    with pa.ipc.new_file(path, batch.schema) as writer:
        writer.write_batch(batch)


@pytest.mark.parametrize(
    ("offsets", "indices"),
    [
        ([0, 4, 2, 6], None),
        ([0, 2, 600, 6], None),
        ([0, -2, 4, 6], None),
        ([0, 2, 4, 6], [0, 1, 99]),
        ([0, 2, 4, 6], [0, -1]),
    ],
)
def test_a_damaged_arrow_file_is_broken(
    tmp_path: Path, offsets: list[int], indices: list[int] | None
) -> None:
    """Offsets and indices out of bounds once gave "ValueError: the document is valid UTF-8", or worse."""
    arrow_with_offsets(tmp_path / "a.arrow", offsets, indices)

    found = read(tmp_path / "a.arrow")

    assert (found.documents, found.bad) == ([], [(0, "broken_file")])
