"""Runs commands of `tokmill` in a folder with a store: in this process, or with a server of Prefect."""

import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import KERNEL_CACHE
from tests.test_flows.forking import run_forked
from tokmill.flows.commands.main import main

RUN_SECONDS = 240


def free_port() -> int:
    """Return a free TCP port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def clean_environment(**changes: str) -> dict[str, str]:
    """Return this process's environment without variables that would redirect a run, or narrow its tables."""
    mine = {
        name: value
        for name, value in os.environ.items()
        if name == KERNEL_CACHE or not name.startswith(("PREFECT_", "TOKMILL_", "COLUMNS"))
    }
    return {**mine, "PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "1", **changes}


@dataclass(frozen=True)
class Outcome:
    """The exit code and the output of a finished command."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Standard output as JSON."""
        assert self.code == 0, self.err
        return json.loads(self.out)


@dataclass(frozen=True)
class Tokmill:
    """The command line in one working directory, with one store, against the session's server.

    Attributes:
        folder: the working directory.
        environment: the commands' environment variables.
        forks: whether a fork server was started whose settings of Prefect are those of this environment, or
            the commands do without Prefect.
    """

    folder: Path
    environment: Mapping[str, str]
    forks: bool = False

    @property
    def store(self) -> Path:
        """The store's folder."""
        return self.folder / "store"

    @property
    def _own_environment(self) -> Mapping[str, str]:
        return {**self.environment, "TOKMILL_STORE": str(self.store)}

    def start(self, *arguments: str, **changes: str) -> "subprocess.Popen[str]":
        """Start a command without waiting for it."""
        return subprocess.Popen(
            [sys.executable, "-m", "tokmill", *arguments],
            cwd=self.folder,
            env={**self._own_environment, **changes},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *arguments: str, **changes: str) -> Outcome:
        """Run a command to its end; `changes` are environment variables."""
        if self.forks and not changes:
            return Outcome(*run_forked(arguments, self.folder, self._own_environment, RUN_SECONDS))
        return finished(self.start(*arguments, **changes))

    def run(self, profile: str, *arguments: str, **changes: str) -> dict[str, Any]:
        """Run a profile that must succeed and return the run's JSON document."""
        document: dict[str, Any] = self("run", profile, "--json", *arguments, **changes).document
        return document

    def at(self, folder: Path) -> "Tokmill":
        """Return a copy with another working directory and its store."""
        return replace(self, folder=folder)


class InThisProcess(Tokmill):
    """The command line without processes of its own, and runs without Prefect: a tenth of the work."""

    def __call__(self, *given: object, **changes: str) -> Outcome:
        """Run a command to its end; `changes` are environment variables."""
        arguments = tuple(map(str, given))
        is_run = arguments[:1] == ("run",) or arguments[:2] == ("vocab", "sweep")
        if is_run and "--no-prefect" not in arguments:
            arguments = (*arguments, "--no-prefect")
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.chdir(self.folder)
            patch.delenv("COLUMNS", raising=False)
            for name, value in {"TOKMILL_STORE": str(self.store), **changes}.items():
                patch.setenv(name, value)
            code = main(arguments)
        return Outcome(code, out.getvalue(), err.getvalue())


def finished(process: "subprocess.Popen[str]") -> Outcome:
    """Wait for a started command."""
    out, err = process.communicate(timeout=RUN_SECONDS)
    return Outcome(process.returncode, out, err)


_PACE = threading.Event()  # never set


def processes_with(variable: str, value: str) -> set[int]:
    """Return the ids of running processes with this variable, from /proc."""
    wanted = f"{variable}={value}".encode()
    found = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and folder.name != str(os.getpid()):
            with suppress(OSError):  # the process has just ended
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found.add(int(folder.name))
    return found


def left_after(seconds: float, variable: str, value: str) -> set[int]:
    """Wait until there are no such processes, or the time is over; return the remaining ids."""
    until = time.monotonic() + seconds
    while (left := processes_with(variable, value)) and time.monotonic() < until:
        _PACE.wait(0.05)
    return left


def end_all(left: set[int]) -> None:
    """Kill remaining processes, so that a failing test leaves none."""
    for number in left:
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
