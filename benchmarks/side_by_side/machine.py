"""Where and with what was measured, in a few lines that go above every table."""

import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path

from side_by_side.environment import CHECKOUT, ahead_folder


def describe(sides: list[str]) -> dict[str, str]:
    """Return what a reader has to know to judge the figures, by name."""
    early = [f"{found.name} {found.version} (ahead)" for found in distributions(path=[str(ahead_folder())])]
    packages = ["numpy", "numba", *(side for side in sides if " " not in side and side != "tokmill")]
    load = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
    return {
        "command": shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{_processor()}, {len(os.sched_getaffinity(0))} cores; load {load} when it began",
        "tokmill": _commit(),
        "with": ", ".join([f"Python {platform.python_version()}", *map(_release, packages), *early]),
    }


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.is_file():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _release(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"{package} (not installed)"


def _commit() -> str:
    """Return the checkout's commit, and whether the code that is measured differs from it."""
    try:
        commit = _git("rev-parse", "--short", "HEAD")
        changed = _git("status", "--porcelain", "--", "tokenizer", "pyproject.toml")
    except (OSError, subprocess.CalledProcessError):
        return version("tokmill")
    return f"{version('tokmill')} at {commit}{' with changes' if changed else ''}"


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout.strip()
