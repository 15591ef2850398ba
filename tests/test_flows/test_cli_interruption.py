"""A run that receives SIGINT, SIGTERM or SIGKILL, alone or with its process group (as from a terminal)."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.test_flows.commands import clean_environment
from tests.test_flows.processes import end_all, left_after

PROFILE = """
[sources.many]
files = ["*.txt"]
[ingest]
shard_bytes = 65536
[train]
vocab_size = 400
"""
# It began a child and has come to a standstill in its main thread when the signal reaches it.
STANDSTILL = """
import os, signal, subprocess, threading
from tokmill.flows.process import start_tethered
from tokmill.flows.cli.interruption import keeping, noting_signals
started = start_tethered(["http.server", "0", "--bind", "127.0.0.1"], os.environ, subprocess.DEVNULL)
with noting_signals():
    keeping(lambda: "something was kept")
    told = False
    while True:
        try:
            if not told:
                told = True
                print(started.pid, flush=True)
            threading.Event().wait()
        except KeyboardInterrupt:
            pass
"""

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="looks for processes in /proc"
)


@dataclass(frozen=True)
class Ended:
    """A run that received a signal: output before and after, exit code, and remaining processes."""

    first: str
    rest: list[str]
    code: int
    left: set[int]


@pytest.fixture
def ended_by(tmp_path: Path, migrated_home: Path) -> Callable[[int, bool], Ended]:
    """Run on the embedded server, send a signal after `ingest`, wait for the end."""
    home = shutil.copytree(migrated_home, tmp_path / "prefect")
    for number in range(40):
        (tmp_path / f"{number}.txt").write_text(f"Document {number} of many, with some words. " * 2000)
    (tmp_path / "own.toml").write_text(PROFILE)
    command = [sys.executable, "-m", "tokmill", "run", "own.toml", "--workers", "1"]
    environment = clean_environment(PREFECT_HOME=str(home))

    def end(number: int, to_the_group: bool) -> Ended:
        with subprocess.Popen(
            command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
        ) as run:
            assert run.stderr is not None
            try:
                first = next(line for line in run.stderr if line.startswith("ingest"))
                (os.killpg if to_the_group else os.kill)(run.pid, number)
                code = run.wait(60)
                left = left_after(5, "PREFECT_HOME", str(home))
                end_all(left)
                return Ended(first, run.stderr.read().splitlines(), code, left)
            finally:
                if run.poll() is None:
                    os.killpg(run.pid, signal.SIGKILL)

    return end


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.parametrize(
    ("number", "to_the_group", "code", "word"),
    [
        (signal.SIGINT, True, 130, "interrupted"),
        (signal.SIGTERM, True, 143, "terminated"),
        (signal.SIGTERM, False, 143, "terminated"),
    ],
)
def test_a_signal_ends_a_run_soon_and_tidily(ended_by, tmp_path, number, to_the_group, code, word):
    ended = ended_by(number, to_the_group)

    assert "made" in ended.first
    assert ended.code == code
    assert ended.rest[-1].startswith(f"tokmill: {word}")
    assert "kept in tokmill-store" in ended.rest[-1]
    assert not ended.left
    assert list((tmp_path / "tokmill-store" / "corpus").iterdir())


@pytest.mark.slow
@pytest.mark.server
def test_a_run_that_is_killed_leaves_no_child(ended_by):
    ended = ended_by(signal.SIGKILL, False)

    assert ended.code == -signal.SIGKILL
    assert not ended.left


def test_a_command_at_a_standstill_ends_with_its_children(tmp_path):
    environment = clean_environment(STANDSTILL=str(tmp_path))
    with subprocess.Popen(
        [sys.executable, "-c", STANDSTILL],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        child = int(process.stdout.readline())
        os.kill(process.pid, signal.SIGTERM)
        code = process.wait(60)
        left = left_after(0, "STANDSTILL", str(tmp_path))
        end_all(left | {child} if left else set())
        said = process.stderr.read()

    assert code == 128 + signal.SIGTERM
    assert not left
    assert said.splitlines()[-1].startswith("tokmill: terminated (SIGTERM); something was kept")


@pytest.mark.slow
def test_a_server_that_does_not_answer_is_said(tmp_path):
    environment = clean_environment(
        PREFECT_HOME=str(tmp_path / "prefect"), PREFECT_API_URL="http://127.0.0.1:9/api"
    )
    done = subprocess.run(
        [sys.executable, "-m", "tokmill", "run", "smoke"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "no Prefect server answers at http://127.0.0.1:9/api" in done.stderr
    assert "Traceback" not in done.stderr
