"""The kernel machinery: signatures, the cache of machine code, which notices every change, announcements."""

import ast
import logging
import os
import subprocess
import sys
from enum import IntEnum
from pathlib import Path
from types import FunctionType, SimpleNamespace

import numpy as np
import pytest
from numpy.typing import NDArray

from tokmill.tokenizer.jit import Compilation, kernel, machine_code
from tokmill.tokenizer.jit.arrays import BytesIn, Int64In, UInt64Table
from tokmill.tokenizer.jit.digests import digest_of_constants
from tokmill.tokenizer.jit.intrinsics import load_u64
from tokmill.tokenizer.preparing import prepare

CHECKOUT = Path(__file__).resolve().parents[2]


@kernel(inline=True)
def add_mixed(data: NDArray[np.uint8], at: int) -> np.uint64:
    """A word of the data, multiplied until it overflows."""
    return load_u64(data, at) * np.uint64(0x9E3779B97F4A7C15)


@kernel
def mix_words(data: BytesIn, offsets: Int64In, out: UInt64Table) -> int:
    for i in range(offsets.shape[0]):
        out[i, 0] = add_mixed(data, offsets[i])
    return offsets.shape[0]


def test_machine_code_gives_what_plain_python_gives():
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


def test_importing_the_package_does_not_load_numba_or_numpy():
    code = "import sys, tokmill.tokenizer; print(sorted({'numba', 'numpy', 'regex'} & set(sys.modules)))"
    assert run_python(code) == "[]\n"
    code = "import sys; from tokmill.tokenizer import Tokenizer, load, train; print('numba' in sys.modules)"
    assert run_python(code) == "False\n"


@pytest.mark.slow
def test_a_cache_folder_that_cannot_be_written_is_replaced(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    code = "from tokmill.tokenizer.jit.machine_code import cache_folder; print(cache_folder('digest'))"
    found = Path(run_python(code, TOKMILL_KERNEL_CACHE=str(blocked / "cache"), TMPDIR=str(tmp_path)).strip())
    assert found.is_relative_to(tmp_path)
    assert found.parent.stat().st_mode & 0o077 == 0


def test_prepare_reports_every_kernel(caplog):
    told: list[Compilation] = []
    with caplog.at_level(logging.INFO):
        assert prepare(told.append, modules=["encoding"]) >= 0
    with pytest.raises(ValueError, match="no module with kernels is called merge_tables, of_nothing"):
        prepare(modules=["merge_tables", "encoding", "of_nothing"])
    names = {report.kernel for report in told}
    kernels = ("first_gap", "first_gap_of_long_tokens", "gather_tokens")
    assert names <= {f"tokmill.tokenizer.kernels.encoding.{name}" for name in kernels}


FILES = {
    "caller.py": """
from tokmill.tokenizer.jit import kernel, specialized
from tokmill.tokenizer.jit.arrays import Int32In, Int64In
from between import through
from settings import FACTOR

@kernel
def total(values: Int64In) -> int:
    sum = 0
    for i in range(values.shape[0]):
        sum += through(values[i]) * FACTOR
    return sum

total_of_narrow = specialized(total.py_func, {"values": Int32In})
""",
    "between.py": """
from tokmill.tokenizer.jit import kernel
from callee import twice

@kernel(inline=True)
def through(value: int) -> int:
    return twice(value)
""",
    "callee.py": """
from tokmill.tokenizer.jit import kernel

@kernel(inline=True)
def twice(value: int) -> int:
    return value * 2
""",
    "settings.py": "FACTOR = 1",
    "main.py": """
import os
from pathlib import Path
import numpy as np
from tokmill.tokenizer.jit import machine_code
machine_code.CARRIED = Path(os.environ.get("CARRIED", "nowhere"))
told, at_work = [], []
machine_code._reports += [told.append, lambda _: at_work.append(machine_code.compiling())]
from caller import total, total_of_narrow
print("up", flush=True); input()
sums = [total(np.arange(4)), total_of_narrow(np.arange(3, dtype=np.int32))]
begin = [report.seconds is None for report in told]
assert begin == [kernel is not None for kernel in at_work]
print(sums, [report.cached for report in told if report.seconds is not None])
""",
}


def started(folder: Path, cache: Path, **changes: str) -> subprocess.Popen[str]:
    """A process that is about to run the kernel of these files, in two folders."""
    for name, text in FILES.items():
        place = folder / ("others" if name in {"callee.py", "settings.py"} else "kernels") / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(changes.get(name.removesuffix(".py"), text))
    environment = {
        "TOKMILL_KERNEL_CACHE": str(cache),
        "PYTHONPATH": f"{CHECKOUT}:{folder / 'others'}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    process = subprocess.Popen(
        [sys.executable, "-W", "error", str(folder / "kernels" / "main.py")],
        env=os.environ | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


def said(process: subprocess.Popen[str]) -> str:
    return process.communicate("\n", timeout=120)[0].strip()


def damage(cache: Path) -> None:
    for file in cache.rglob("*.nbc"):
        file.write_bytes(file.read_bytes()[:20])


@pytest.mark.slow
def test_the_cache_notices_a_change_of_a_callee_or_a_constant_in_another_file(tmp_path):
    thrice = FILES["callee.py"].replace("* 2", "* 3")
    for changes, sums, cached in (
        ({}, [12, 6], False),
        ({}, [12, 6], True),
        ({"callee": thrice}, [18, 9], False),
        ({"settings": "FACTOR = 5"}, [60, 30], False),
        ({}, [12, 6], True),
    ):
        process = started(tmp_path, tmp_path / "cache", **changes)
        assert said(process) == f"{sums} {[cached, cached]}"


@pytest.mark.slow
def test_copies_share_machine_code_one_of_two_compiles_and_damaged_code_is_made_again(tmp_path):
    cache = tmp_path / "cache"
    both = [started(tmp_path / name, cache) for name in ("first", "second")]
    for process in both:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    cached = [ast.literal_eval(said(process).removeprefix("[12, 6] ")) for process in both]
    assert [sorted(kernel) for kernel in zip(*cached, strict=True)] == [[False, True], [False, True]]
    damage(cache)
    runs = [said(started(tmp_path, cache)) for _ in range(4)]
    assert all(run.startswith("[12, 6] ") for run in runs)
    assert runs[-1] == "[12, 6] [True, True]"


@pytest.mark.slow
def test_code_in_a_wheel_is_read_where_it_is_valid_and_the_processor_can_run_it(tmp_path, monkeypatch):
    wheel, own, empty = tmp_path / "wheel", tmp_path / "own", tmp_path / "empty"
    name, features = machine_code.portable_target()

    def cached(cache: Path, **changes: str) -> list[bool]:
        return ast.literal_eval(said(started(tmp_path, cache, **changes)).partition("] ")[2])

    assert cached(own) == [False, False]
    with monkeypatch.context() as building:
        building.setenv("NUMBA_CPU_NAME", name)
        building.setenv("NUMBA_CPU_FEATURES", features)
        assert cached(wheel) == [False, False]
    monkeypatch.setenv("CARRIED", str(wheel))
    assert cached(empty) == [True, True]
    assert not list(empty.rglob("*.nbc"))
    assert cached(tmp_path / "others", settings="FACTOR = 5") == [False, False]
    with monkeypatch.context() as weaker:
        weaker.setenv("NUMBA_ENABLE_AVX", "0")
        assert cached(tmp_path / "weaker") == [not features] * 2
    damage(own)
    assert cached(own)[0] is False, "what was compiled for the processor comes first"
    damage(wheel)
    assert [cached(empty), cached(empty)] == [[False, False], [True, True]]


class Two(IntEnum):
    """As the number, and not it."""

    VALUE = 2


def naming(value: object) -> FunctionType:
    """A function whose module has a value for the one name that it uses."""

    def function() -> object:
        return NAMED  # noqa: F821

    return FunctionType(function.__code__, {"NAMED": value}, "function")


def test_constants_differ_by_value_and_by_type():
    values = [2, 2.0, True, "2", b"2", np.uint64(2), np.int64(2), (2,), ((2,),), Two.VALUE, np.uint64, Two]
    arrays = [
        np.array([2, 1], np.uint8),
        np.array([2, 3], np.uint8),
        np.array([[2, 1]], np.uint8),
        np.array([2, 1]),
    ]
    digests = [digest_of_constants([naming(value)]) for value in [*values, *arrays, np, np.sum, len, np.add]]
    assert len(set(digests)) == len(digests)
    again = [digest_of_constants([naming(value)]) for value in [2, 2.0]]
    assert again == digests[:2]


def test_what_has_no_form_is_refused():
    with pytest.raises(
        TypeError, match="NAMED: a kernel cannot use a global of type SimpleNamespace; use a number"
    ):
        digest_of_constants([naming(SimpleNamespace(factor=2))])
