"""The kernel machinery: signatures, the cache of machine code, plain Python, announcements."""

import logging
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np
import pytest
from numpy.typing import NDArray

from tokmill.tokenizer.jit import Compilation, kernel, machine_code
from tokmill.tokenizer.jit.arrays import Bytes, BytesIn, Int64, Int64In, UInt64Table, signature_of
from tokmill.tokenizer.jit.intrinsics import load_u64
from tokmill.tokenizer.preparing import prepare

CHECKOUT = Path(__file__).resolve().parents[2]


class Both(NamedTuple):
    """Two arrays of one type."""

    first: Int64
    second: Int64


class Mixed(NamedTuple):
    """An array and a number."""

    data: Bytes
    size: int


def test_signatures_are_the_annotations() -> None:
    def example(data: BytesIn, table: UInt64Table, both: Both, mixed: Mixed, n: int, flag: bool) -> int:
        return n

    types = [str(kind) for kind in signature_of(example)]
    assert types == [
        "readonly array(uint8, 1d, C)",
        "array(uint64, 2d, C)",
        "Both(array(int64, 1d, C) x 2)",
        "Mixed(array(uint8, 1d, C), int64)",
        "int64",
        "bool",
    ]


def test_a_kernel_cannot_take_just_anything() -> None:
    def example(data: list[int]) -> int:
        return len(data)

    with pytest.raises(TypeError, match=r"example\(data\): a kernel cannot take"):
        signature_of(example)


@kernel(inline=True)
def add_mixed(data: NDArray[np.uint8], at: int) -> np.uint64:
    """A word of the data, multiplied until it overflows."""
    return load_u64(data, at) * np.uint64(0x9E3779B97F4A7C15)


@kernel
def mix_words(data: BytesIn, offsets: Int64In, out: UInt64Table) -> int:
    """Mix the word at each offset."""
    for i in range(offsets.shape[0]):
        out[i, 0] = add_mixed(data, offsets[i])
    return offsets.shape[0]


def test_machine_code_gives_what_plain_python_gives() -> None:
    data = np.frombuffer(bytes(range(200, 240)), np.uint8)
    offsets = np.array([0, 3, 31], np.int64)
    offsets.flags.writeable = False
    fast, plain = np.zeros((3, 1), np.uint64), np.zeros((3, 1), np.uint64)
    assert mix_words(data, offsets, fast) == 3
    with np.errstate(over="ignore"):
        mix_words.py_func(data, offsets, plain)
    assert fast.tolist() == plain.tolist()
    assert mix_words(data.copy(), offsets.copy(), fast) == 3, "arrays that may be written are read as well"
    with pytest.raises(TypeError, match="No matching definition"):
        mix_words(data.astype(np.int8), offsets, fast)


def test_numba_is_left_as_it_was() -> None:
    assert not numba.config.CACHE_DIR
    assert not numba.config.DISABLE_JIT


def run_python(code: str, **environment: str) -> str:
    """Run Python in the checkout with more environment, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=CHECKOUT,
        env=os.environ | {"PYTHONPATH": str(CHECKOUT)} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_the_package_does_not_load_numba_or_numpy() -> None:
    code = "import sys, tokmill.tokenizer; print(sorted({'numba', 'numpy', 'regex'} & set(sys.modules)))"
    assert run_python(code) == "[]\n"
    code = "import sys; from tokmill.tokenizer import Tokenizer, load, train; print('numba' in sys.modules)"
    assert run_python(code) == "False\n"


CALLER = """
from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import Int64In
from between import through

@kernel
def total(values: Int64In) -> int:
    sum = 0
    for i in range(values.shape[0]):
        sum += through(values[i])
    return sum
"""

BETWEEN = """
from tokmill.tokenizer.jit import kernel
from callee import twice

@kernel(inline=True)
def through(value: int) -> int:
    return twice(value)
"""

CALLEE = """
from tokmill.tokenizer.jit import kernel

@kernel(inline=True)
def twice(value: int) -> int:
    return value * {factor}
"""

MAIN = """
import sys; sys.path += {folders!r}
import numpy as np
from tokmill.tokenizer.jit import machine_code
told = []
machine_code._reports.append(told.append)
from caller import total
print(total(np.arange(4)), [(report.cached, report.seconds is None) for report in told])
"""


@pytest.mark.slow
@pytest.mark.parametrize("callee_folder", ["kernels", "others"], ids=["beside it", "in another folder"])
def test_the_cache_notices_a_change_in_a_callee_in_another_file(tmp_path: Path, callee_folder: str) -> None:
    folders, cache = [tmp_path / "kernels", tmp_path / "others"], tmp_path / "cache"
    for folder in folders:
        folder.mkdir()
    (tmp_path / "kernels" / "caller.py").write_text(CALLER)
    (tmp_path / callee_folder / "between.py").write_text(BETWEEN)
    for factor, expected in (
        (2, "12 [(False, True), (False, False)]\n"),
        (2, "12 [(True, False)]\n"),
        (3, "18 [(False, True), (False, False)]\n"),
    ):
        (tmp_path / callee_folder / "callee.py").write_text(CALLEE.format(factor=factor))
        main = MAIN.format(folders=[str(folder) for folder in folders])
        out = run_python(main, TOKMILL_KERNEL_CACHE=str(cache), PYTHONDONTWRITEBYTECODE="1")
        assert out == expected
    assert len(list(cache.iterdir())) == 2


@pytest.mark.slow
def test_of_two_processes_at_once_one_compiles(tmp_path: Path) -> None:
    for name, text in {"caller": CALLER, "between": BETWEEN, "callee": CALLEE.format(factor=2)}.items():
        (tmp_path / f"{name}.py").write_text(text)
    main = MAIN.format(folders=[str(tmp_path)]).replace("print(", "print('up', flush=True); input(); print(")
    environment = os.environ | {"TOKMILL_KERNEL_CACHE": str(tmp_path / "cache")}
    both = [
        subprocess.Popen(
            [sys.executable, "-c", main],
            cwd=CHECKOUT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for process in both:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
    for process in both:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    said = sorted(process.communicate(timeout=60)[0] for process in both)
    assert said == ["12 [(False, True), (False, False)]\n", "12 [(True, False)]\n"]


@pytest.mark.slow
def test_a_cache_that_cannot_be_read_is_made_again(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    for name, text in (("caller", CALLER), ("between", BETWEEN), ("callee", CALLEE.format(factor=2))):
        (tmp_path / f"{name}.py").write_text(text)
    main = MAIN.format(folders=[str(tmp_path)])
    run_python(main, TOKMILL_KERNEL_CACHE=str(cache))
    for file in cache.rglob("*.nbc"):
        file.write_bytes(file.read_bytes()[:20])
    assert run_python(main, TOKMILL_KERNEL_CACHE=str(cache)).startswith("12 ")
    assert list(cache.rglob("*.nbc")) == []
    assert run_python(main, TOKMILL_KERNEL_CACHE=str(cache)) == "12 [(False, True), (False, False)]\n"


@pytest.mark.slow
def test_a_cache_folder_that_cannot_be_written_is_replaced(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    code = "from tokmill.tokenizer.jit.machine_code import cache_folder; print(cache_folder('digest'))"
    found = Path(run_python(code, TOKMILL_KERNEL_CACHE=str(blocked / "cache"), TMPDIR=str(tmp_path)).strip())
    assert found.is_relative_to(tmp_path)
    assert found.parent.stat().st_mode & 0o077 == 0


def test_prepare_reports_every_kernel(caplog: pytest.LogCaptureFixture) -> None:
    told: list[Compilation] = []
    with caplog.at_level(logging.INFO):
        assert prepare(told.append, modules=["lookup"]) >= 0
    names = {report.kernel for report in told}
    kernels = ("add_up", "gather_tokens", "locate_tokens", "look_up")
    assert names <= {f"tokmill.tokenizer.kernels.lookup.{name}" for name in kernels}


def test_a_module_that_has_no_kernels_cannot_be_prepared() -> None:
    with pytest.raises(
        ValueError, match="prepare: no module with kernels is called merge_tables, of_nothing"
    ):
        prepare(modules=["merge_tables", "lookup", "of_nothing"])


@pytest.mark.slow
def test_kernels_run_as_plain_python() -> None:
    chosen = [
        "test_encoding.py::test_ids_by_hand",
        "test_encoding.py::test_the_longest_special_token_wins",
        "test_encoding.py::test_long_pretokens_are_encoded_as_short_ones",
        "test_encoding.py::test_any_text_comes_back",
        "test_training.py::test_merges_worked_out_by_hand",
        "test_training.py::test_merges_are_those_of_the_reference",
        "test_training.py::test_however_few_places_are_listed_at_a_time_the_merges_are_the_same",
        "test_first_seen.py::test_first_is_meant_in_the_words_as_merged_so_far",
        "test_first_seen.py::test_merges_are_those_of_minbpe",
        "test_counting.py::test_counts_by_hand",
        "test_counting.py::test_merging_adds_up",
        "test_counting.py::test_strings_are_sorted_as_python_sorts_them",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--hypothesis-profile=plain"]
        + [f"tests/test_tokenizer/{name}" for name in chosen],
        cwd=CHECKOUT,
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_long_compilation_says_how_far_it_is(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = list[float]()
    monkeypatch.setattr(machine_code, "_times", times)
    machine_code.tell(Compilation("read before", cached=False, seconds=1.0))  # nobody was told of a beginning
    times.append(time.monotonic() - 1000)
    machine_code.tell(Compilation("read", cached=True, seconds=0.1))
    machine_code.tell(Compilation("compiled", cached=False, seconds=1.0))
    (said,) = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert said == "compiling kernels: 1 so far, in 1000 s"
