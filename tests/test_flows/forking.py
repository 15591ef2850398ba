"""Runs commands in forked processes that have all modules imported already.

To start Python and import Prefect takes longer than most commands take. A process that has done so forks for
every command (multiprocessing's fork server), so that each still has a process, a working directory, an
environment and an exit of its own. What Python reads when it starts, such as PYTHONHASHSEED, is the fork
server's: commands that need another one are started in the ordinary way.
"""

import atexit
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tokmill.flows.commands.main import main

_CONTEXT = multiprocessing.get_context("forkserver")


def start_fork_server(environment: Mapping[str, str]) -> None:
    """Start it, with an environment; once in a test session."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(environment)
    try:
        _CONTEXT.set_forkserver_preload(["tests.test_flows.preloaded"])
        first = _CONTEXT.Process(target=int)
        first.start()
        first.join()
    finally:
        os.environ.clear()
        os.environ.update(before)


def run_forked(
    arguments: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    seconds: float,
    first: Callable[[], None] | None = None,
) -> tuple[int, str, str]:
    """Run a command to its end; gives its exit code, standard output and standard error.

    `environment` is all of its environment; Prefect's settings in it must be the fork server's. `first` is
    called in the process before the command.
    """
    with TemporaryDirectory() as name:
        said = [Path(name) / stream for stream in ("out", "err")]
        process = _CONTEXT.Process(target=_command, args=(arguments, folder, environment, said, first))
        process.start()
        process.join(seconds)
        if process.exitcode is None:
            process.kill()
            process.join()
        assert process.exitcode is not None
        out, err = (file.read_text(encoding="utf-8") for file in said)
        return process.exitcode, out, err


def _command(
    arguments: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    said: Sequence[Path],
    first: Callable[[], None] | None,
) -> None:
    for number, file in enumerate(said, 1):
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["tokmill", *arguments]
    if first is not None:
        first()
    code = main()
    # multiprocessing would leave out what a process does at its end: Prefect sends its last events then
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
