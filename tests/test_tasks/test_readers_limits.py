"""Documents beyond the limit are bad; a lack of memory or a failing device makes none bad."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.test_tasks.reading import COMPRESSORS, ingested, read, written
from tokmill.tasks.core.errors import DocumentError, MachineError, StoreError
from tokmill.tasks.core.faults import broken, is_of_machine
from tokmill.tasks.formats.files.manifests import readable

TEXTS = ["one", "x" * 40_000, "two", "y" * 300_000, "z" * 1000]
LIMIT = 1100


KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "a.txt": ("lines", {"format": "lines"}),
    "b.txt": ("delimited", {"format": "delimited", "delimiter": "<|end|>"}),
    "a.jsonl": ("jsonl", {}),
    "a.parquet": ("parquet", {}),
    "a.arrow": ("stream", {}),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_document_that_is_too_long_is_bad_and_the_others_are_kept(tmp_path: Path, name: str) -> None:
    kind, options = KINDS[name]
    (tmp_path / name).write_bytes(written(kind, TEXTS))

    found = read(tmp_path / name, max_document_bytes=LIMIT, **options)

    assert found.documents == [(0, b"one"), (2, b"two"), (4, b"z" * 1000)]
    assert found.bad == [(1, "too_long"), (3, "too_long")]
    with pytest.raises(
        DocumentError, match=r"row 1 .*too_long \(over 1,100 bytes\): '.*xxx.*max_document_bytes"
    ):
        ingested(tmp_path, {"s": {"files": [name], "max_document_bytes": LIMIT, **options}})


@pytest.mark.parametrize("length", [9, 10, 11])
@pytest.mark.parametrize(
    ("name", "content", "options", "around"),
    [
        ("a.txt", "{}", {}, 0),
        ("a.txt", "{}\nab\n", {"format": "lines"}, 0),
        ("a.jsonl", '{{"text":"{}"}}\n{{"text":""}}\n', {}, 11),
        ("a.json", '[{{"text":"{}"}}]', {}, 11),
    ],
)
def test_the_limit_itself_is_allowed(
    tmp_path: Path, length: int, name: str, content: str, options: dict[str, str], around: int
) -> None:
    path = tmp_path / name
    path.write_text(content.format("x" * length))

    found = read(path, max_document_bytes=10 + around, **options)

    assert found.bad == ([(0, "too_long")] if length > 10 else [])


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


@pytest.mark.parametrize("offsets", [[0, 4, 2, 6], [0, 2, 600, 6], [0, -2, 4, 6], [0, 2, 4, 6]])
@pytest.mark.parametrize("indices", [None, [0, 1, 99], [0, -1]])
def test_a_damaged_arrow_file_is_broken(
    tmp_path: Path, offsets: list[int], indices: list[int] | None
) -> None:
    """Offsets and indices out of bounds once gave "ValueError: the document is valid UTF-8", or worse."""
    arrow_with_offsets(tmp_path / "a.arrow", offsets, indices)

    found = read(tmp_path / "a.arrow")

    is_sound = offsets == [0, 2, 4, 6] and indices is None
    assert (found.documents, found.bad) == ([], [(0, "broken_file")]) or (is_sound and not found.bad)


LARGE = [f"{number} " + "x" * (8 << 20) for number in range(2)]

# Reads a small file of a format, then a large one, with limits a little above the memory in use, in steps;
# prints the outcome of each.
LIMITED = """
import resource, sys
from pathlib import Path
from tokmill.tasks.formats.text.detection import format_of
from tokmill.tasks.formats.text.readers import read_file_batches
from tokmill.tasks.formats.text.sources import ReadOptions

def look(path):
    options = ReadOptions(on_error="quarantine", format="prose" if path.suffix == ".py" else "auto")
    pieces = list(read_file_batches(path, format_of(path, options), options))
    return [bad.reason for piece in pieces for bad in piece.bad], sum(map(len, pieces))

small, large = map(Path, sys.argv[1:])
assert look(small) == ([], 2), look(small)
in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
for extra in (0, 8, 24, 60):
    resource.setrlimit(resource.RLIMIT_AS, (in_use + (extra << 20), -1))
    try:
        bad, number = look(large)
    except MemoryError:
        print("memory")
    else:
        print(number, *bad)
resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
print(*look(large))
"""


def in_memory(kind: str, texts: list[str]) -> bytes:
    """Texts in a format, compressed; Python gets two docstrings, and a list that takes much of its parser."""
    if kind == "py":
        numbers = "1,\n" * (len(texts[0]) // 40)
        return f'"""One."""\nx = [\n{numbers}]\ndef f():\n    """Two."""\n'.encode()
    name, suffix = Path(kind).stem, Path(kind).suffix
    return COMPRESSORS[suffix](written(name, texts, compression="zstd"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["parquet", "arrow", *(f"jsonl{suffix}" for suffix in COMPRESSORS), "py"])
def test_a_lack_of_memory_makes_no_document_bad(tmp_path: Path, kind: str) -> None:
    for size, texts in (("small", ["one", "two"]), ("large", LARGE)):
        (tmp_path / f"{size}.{kind}").write_bytes(in_memory(kind, texts))
    files = [str(tmp_path / f"{size}.{kind}") for size in ("small", "large")]
    command = [sys.executable, "-c", LIMITED, *files]

    # Other allocators keep memory for later use, and the arenas of threads hide a lack of it.
    allocator = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=allocator)

    assert done.returncode == 0, done.stderr
    *limited, unlimited = done.stdout.splitlines()
    assert unlimited == "[] 2"
    assert "memory" in limited
    assert set(limited) <= {"memory", "2"}


@pytest.fixture
def failing(tmp_path: Path) -> Path:
    """A regular file that the operating system fails to read (EIO)."""
    path = tmp_path / "failing.txt"
    path.symlink_to("/proc/self/mem")
    with pytest.raises(OSError, match="Input/output error"), path.open("rb") as file:
        file.read(1)
    return path


@pytest.mark.parametrize("file_format", ["text", "lines", "jsonl", "csv", "prose"])
def test_a_failing_disk_makes_no_document_bad(failing: Path, file_format: str) -> None:
    with pytest.raises(MachineError, match="Input/output error"):
        read(failing, format=file_format, on_error="quarantine")


def test_an_artifact_on_a_failing_disk_is_not_called_broken(failing: Path) -> None:
    with pytest.raises(MachineError, match="cannot be read"), readable(failing, "balance"):
        failing.read_bytes()
    with pytest.raises(StoreError, match="not a readable balance"), readable(failing, "balance"):
        (failing / "none").read_bytes()


OF_MACHINE = [
    MemoryError(),
    pa.ArrowMemoryError("malloc of size 9 failed"),
    OSError(116, "Stale file handle"),
    pa.ArrowException("Unknown error: Failed to launch worker thread: Resource temporarily unavailable"),
]
OF_DATA = [
    pa.ArrowMemoryError(f"malloc of size {2**61} failed"),
    OSError("Corrupt snappy data"),
    pa.ArrowInvalid("x"),
    ValueError(),
]


@pytest.mark.parametrize("error", [*OF_MACHINE, *OF_DATA], ids=repr)
def test_faults_of_the_machine_are_not_those_of_the_data(error: Exception) -> None:
    assert is_of_machine(error) == (error in OF_MACHINE)
    expected = MachineError if error in OF_MACHINE else StoreError
    assert isinstance(broken(Path("a.npy"), "not readable", error), expected)
