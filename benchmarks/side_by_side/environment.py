"""The environment of the benchmarks: a virtual environment with this checkout and its peers in it.

It is made once for each interpreter, checkout and list of requirements, in `$TOKMILL_BENCHMARKS`, else in
`tokmill/benchmarks` below `$XDG_CACHE_HOME` or `~/.cache`. tokmill is installed so that it follows the
checkout. A peer that cannot be installed is no reason to stop: it is named, and left out. This module needs
nothing but the standard library, as it runs before there is an environment.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
REQUIREMENTS = CHECKOUT / "benchmarks" / "requirements.txt"
AHEAD = CHECKOUT / "benchmarks" / "requirements-ahead.txt"


def enter(script: str, *, here: bool) -> None:
    """Go on in the environment, which is made first if need be; returns once this is it.

    Args:
        script: the file of the command, which is started again there with the same arguments.
        here: stay in the interpreter that runs this, whatever is installed in it.
    """
    # a command that is told to end removes its files and ends its workers, as an interrupted one does
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    folder = environment_folder()
    if here or Path(sys.prefix).resolve() == folder.resolve():
        return
    with _locked(folder):
        if not (folder / "ready.json").is_file():
            _make(folder)
    sys.stdout.flush()
    python = str(folder / "bin" / "python")
    os.execv(python, [python, str(Path(script).resolve()), *sys.argv[1:]])


def environment_folder() -> Path:
    """Return where the environment for this interpreter, checkout and list of requirements lives."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    recipe = [
        sys.version,
        sys.base_prefix,
        str(CHECKOUT),
        project["dependencies"],
        _requirements(REQUIREMENTS),
    ]
    recipe += _requirements(AHEAD)
    digest = hashlib.blake2b(json.dumps(recipe).encode(), digest_size=8).hexdigest()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    root = os.environ.get("TOKMILL_BENCHMARKS") or f"{cache}/tokmill/benchmarks"
    return Path(root).expanduser() / digest


def not_installed() -> dict[str, str]:
    """Return what could not be installed in the environment that runs this, and pip's last word on it."""
    ready = Path(sys.prefix) / "ready.json"
    return dict(json.loads(ready.read_text())["not_installed"]) if ready.is_file() else {}


def ahead_folder() -> Path:
    """Return where the pre-releases are installed, which no import finds by itself."""
    return Path(sys.prefix) / "ahead"


def _requirements(file: Path) -> list[str]:
    lines = (line.split("#")[0].strip() for line in file.read_text().splitlines())
    return [line for line in lines if line]


def _make(folder: Path) -> None:
    """Build the environment; `ready.json` is written last, so half of one is never taken for one."""
    print(f"making an environment for the peers in {folder} (once, a minute or two)", file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)
    venv.EnvBuilder(with_pip=True).create(folder)
    failure = _install(folder, ["--editable", str(CHECKOUT)])
    if failure:
        sys.exit(f"benchmarks: tokmill could not be installed in {folder}: {failure}")
    failures = {}
    ahead = ["--no-deps", "--target", str(folder / "ahead")]
    wanted = [[requirement] for requirement in _requirements(REQUIREMENTS)]
    for requirement, *how in [*wanted, *([requirement, *ahead] for requirement in _requirements(AHEAD))]:
        failure = _install(folder, [requirement, *how])
        if failure:
            name = re.split(r"[<>=~! ]", requirement)[0]
            failures[name] = failure
            print(f"benchmarks: {name} could not be installed and is left out: {failure}", file=sys.stderr)
    (folder / "ready.json").write_text(json.dumps({"not_installed": failures}))


def environment_of(requirement: str) -> tuple[Path, str | None]:
    """Return the Python of an environment for one peer alone, made if need be, and why there is none."""
    folder = environment_folder().parent / re.sub(r"[^a-z0-9.]+", "-", requirement.lower())
    with _locked(folder):
        failure = None
        if not (folder / "ready.json").is_file():
            shutil.rmtree(folder, ignore_errors=True)
            venv.EnvBuilder(with_pip=True).create(folder)
            failure = _install(folder, requirement.split())
            if failure is None:
                (folder / "ready.json").write_text("{}")
    return folder / "bin" / "python", failure


def _install(folder: Path, what: list[str]) -> str | None:
    """Install something; returns what pip said last if it could not."""
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--only-binary=:all:"]
    done = subprocess.run([*pip, *what], capture_output=True, text=True, check=False)
    said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["no reason given"]
    return None if done.returncode == 0 else said[-1]


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let one process at a time make an environment."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
