"""Machine code is shared by copies of the package, and never used for other sources or constants."""

import json
import os
import shutil
import subprocess
import sys
from enum import IntEnum
from pathlib import Path
from types import FunctionType, SimpleNamespace

import numpy as np
import pytest

from tokmill.tokenizer.jit.numba_cache import digest_of_constants

READ_ALL = """
import json
from tokmill.tokenizer import kernels
from tokmill.tokenizer.preparing import prepare
told = []
prepare(told.append, modules=["lookup"])
print(json.dumps([kernels.__file__, [report.cached for report in told if report.seconds is not None]]))
"""

SCALED = """
from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import Int32In, Int64In
from settings import FACTOR

@kernel
def total(values: Int64In) -> int:
    sum = 0
    for i in range(values.shape[0]):
        sum += values[i] * FACTOR
    return sum

total_of_narrow = total.retyped({Int64In: Int32In})
"""

RUN_SCALED = """
import sys; sys.path += {folders!r}
import json
import numpy as np
from tokmill.tokenizer.jit import machine_code
told = []
machine_code._reports.append(told.append)
from scaled import total, total_of_narrow
sums = [total(np.arange(4)), total_of_narrow(np.arange(3, dtype=np.int32))]
print(json.dumps([sums, [report.cached for report in told if report.seconds is not None]]))
"""


def run_python(code: str, cache: Path, package: Path) -> list:
    """Run Python with the package that lies in a folder, and return what it prints, read as JSON."""
    environment = {
        "TOKMILL_KERNEL_CACHE": str(cache),
        "PYTHONPATH": str(package),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=package,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_two_copies_of_the_package_share_machine_code(tmp_path: Path, checkout: Path) -> None:
    for name in ("first", "second"):
        for part in ("__init__.py", "tokenizer"):
            copy = shutil.copytree if part == "tokenizer" else shutil.copy
            (tmp_path / name / "tokmill").mkdir(parents=True, exist_ok=True)
            copy(checkout / "tokmill" / part, tmp_path / name / "tokmill" / part)
    one, compiled = run_python(READ_ALL, tmp_path / "cache", tmp_path / "first")
    other, read = run_python(READ_ALL, tmp_path / "cache", tmp_path / "second")
    assert Path(one).is_relative_to(tmp_path / "first")
    assert Path(other).is_relative_to(tmp_path / "second")
    assert compiled
    assert not any(compiled)
    assert read == [True] * len(compiled)


@pytest.mark.slow
def test_a_changed_constant_of_a_module_elsewhere_is_noticed(tmp_path: Path, checkout: Path) -> None:
    folders = [tmp_path / "kernels", tmp_path / "elsewhere"]
    for folder in folders:
        folder.mkdir()
    (tmp_path / "kernels" / "scaled.py").write_text(SCALED)
    for factor, sums, cached in ((2, [12, 6], False), (3, [18, 9], False), (2, [12, 6], True)):
        (tmp_path / "elsewhere" / "settings.py").write_text(f"FACTOR = {factor}")
        code = RUN_SCALED.format(folders=[str(folder) for folder in folders])
        assert run_python(code, tmp_path / "cache", checkout) == [sums, [cached, cached]]


class Two(IntEnum):
    """As the number, and not it."""

    VALUE = 2


def naming(value: object) -> FunctionType:
    """A function whose module has a value for the one name that it uses."""

    def function() -> object:
        return NAMED  # noqa: F821

    return FunctionType(function.__code__, {"NAMED": value}, "function")


def test_constants_differ_by_value_and_by_type() -> None:
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


def test_what_has_no_form_is_refused() -> None:
    with pytest.raises(
        TypeError, match="NAMED: a kernel cannot use a global of type SimpleNamespace; use a number"
    ):
        digest_of_constants([naming(SimpleNamespace(factor=2))])
