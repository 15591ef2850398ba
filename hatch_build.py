"""Machine code in the wheel, so that a new machine compiles nothing.

    HATCH_BUILD_HOOK_ENABLE_CUSTOM=1 python -m pip wheel --no-deps .

makes a wheel for one Python and platform, with all kernels compiled for `portable_target()`. They are used
with the versions of numba, llvmlite and numpy that compiled them; others compile as without.
"""

import importlib
import os
import pkgutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledKernels(BuildHookInterface):
    """Puts `tokmill/tokenizer/jit/compiled` into the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the kernels, unless it is for an editable installation."""
        if version == "editable":
            return
        self._folder = tempfile.TemporaryDirectory()
        compiled = _compile(Path(self.root), Path(self._folder.name))
        build_data["force_include"] |= {
            str(file): f"tokmill/tokenizer/jit/compiled/{file.relative_to(compiled)}"
            for file in compiled.rglob("*.nb[ci]")
        }
        build_data.update(pure_python=False, infer_tag=True)


def _compile(root: Path, folder: Path) -> Path:
    """Compile the kernels of a checkout, or of an unpacked source distribution; return where they are."""
    package = folder / "tokmill"
    package.mkdir()
    for part in (root / "tokmill" / "__init__.py", root / "tasks", root / "tokenizer"):
        package.joinpath(part.name).symlink_to(part)
    sys.path.insert(0, str(folder))
    name, features = importlib.import_module("tokmill.tokenizer.jit.machine_code").portable_target()
    os.environ |= {
        "NUMBA_CPU_NAME": name,
        "NUMBA_CPU_FEATURES": features,
        "NUMBA_DISABLE_INTEL_SVML": "1",  # which others may not have
        "TOKMILL_KERNEL_CACHE": str(folder / "compiled"),
    }
    importlib.import_module("tokmill.tokenizer.preparing").kernel_modules()
    for found in pkgutil.iter_modules([str(root / "tasks" / "kernels")]):
        importlib.import_module(f"tokmill.tasks.kernels.{found.name}")
    jit = importlib.import_module("tokmill.tokenizer.jit")
    jit.make_ready(jit.kernel_modules_of("tokmill."))
    return folder / "compiled"
