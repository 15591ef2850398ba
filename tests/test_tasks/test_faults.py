"""Lack of memory, or a failing device, never makes a document bad: it always stops the run."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.test_tasks.reading import COMPRESSORS, ingested, read
from tokmill.tasks.core.errors import MachineError, StoreError
from tokmill.tasks.core.faults import broken, is_of_machine
from tokmill.tasks.formats.files.manifests import readable

TEXTS = [f"{number} " + "x" * (8 << 20) for number in range(2)]

# Reads a small file of a format, then a large one, with limits a little above the memory in use, in steps;
# prints the outcome of each.
CHILD = """
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


def write_parquet(path: Path, texts: list[str]) -> None:
    pq.write_table(pa.table({"text": texts}), path, compression="zstd")


def write_arrow(path: Path, texts: list[str]) -> None:
    table = pa.table({"text": texts})
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(path, table.schema, options=options) as writer:
        writer.write_table(table)


def write_json(path: Path, texts: list[str]) -> None:
    lines = b"".join(json.dumps({"text": text}).encode() + b"\n" for text in texts)
    path.write_bytes(COMPRESSORS[path.suffix if path.suffix != ".jsonl" else ""](lines))


def write_python(path: Path, texts: list[str]) -> None:
    """Two docstrings, and a list that needs much of the parser's memory."""
    numbers = "1,\n" * (len(texts[0]) // 40)
    path.write_text(f'"""One."""\nx = [\n{numbers}]\ndef f():\n    """Two."""\n')


WRITERS: dict[str, Callable[[Path, list[str]], None]] = {
    "parquet": write_parquet,
    "arrow": write_arrow,
    **{f"jsonl{suffix}": write_json for suffix in COMPRESSORS},
    "py": write_python,
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", WRITERS)
def test_a_lack_of_memory_makes_no_document_bad(tmp_path: Path, kind: str) -> None:
    WRITERS[kind](tmp_path / f"small.{kind}", ["one", "two"])
    WRITERS[kind](tmp_path / f"large.{kind}", TEXTS)
    command = [sys.executable, "-c", CHILD, str(tmp_path / f"small.{kind}"), str(tmp_path / f"large.{kind}")]

    # Other allocators keep memory for later use, and the arenas of threads hide a lack of it.
    allocator = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=allocator)

    assert done.returncode == 0, done.stderr
    *limited, unlimited = done.stdout.splitlines()
    assert unlimited == "[] 2"
    assert "memory" in limited
    assert set(limited) <= {"memory", "2"}


def test_text_nested_too_deeply_is_bad(tmp_path: Path) -> None:
    path = tmp_path / "deep.py"
    path.write_text("x = " + "-" * 100_000 + "1\n")

    assert read(path, format="prose", on_error="quarantine").bad == [(0, "syntax_error")]


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


def test_a_failing_disk_stops_a_run_before_it_begins(tmp_path: Path, failing: Path) -> None:
    with pytest.raises(MachineError, match=r"source 'odd': .*failing\.txt cannot be read"):
        ingested(tmp_path, {"odd": {"files": [failing.name], "on_error": "quarantine"}})


def test_an_artifact_on_a_failing_disk_is_not_called_broken(failing: Path) -> None:
    with pytest.raises(MachineError, match="cannot be read"), readable(failing, "balance"):
        failing.read_bytes()
    with pytest.raises(StoreError, match="not a readable balance"), readable(failing, "balance"):
        (failing / "none").read_bytes()


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        pa.ArrowMemoryError("malloc of size 9 failed"),
        OSError(116, "Stale file handle"),
        pa.ArrowException("Unknown error: Failed to launch worker thread: Resource temporarily unavailable"),
    ],
    ids=repr,
)
def test_faults_of_the_machine(error: Exception) -> None:
    assert is_of_machine(error)
    assert isinstance(broken(Path("a.npy"), "not readable", error), MachineError)


@pytest.mark.parametrize(
    "error",
    [
        pa.ArrowMemoryError(f"malloc of size {2**61} failed"),
        OSError("Corrupt snappy data"),
        pa.ArrowInvalid("x"),
        ValueError(),
    ],
    ids=repr,
)
def test_faults_of_the_data(error: Exception) -> None:
    assert not is_of_machine(error)
    assert isinstance(broken(Path("a.npy"), "not readable", error), StoreError)
