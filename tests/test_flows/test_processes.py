"""Runs whose shards other processes make: the artifacts and errors of threads, whoever is killed."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.test_flows.commands import Tokmill, clean_environment, finished, left_after
from tests.test_flows.corpora import write_project
from tests.test_flows.jobs import digests
from tokmill.tasks.store import Store

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/locks").exists(), reason="looks for processes in /proc"),
]
WAIT_SECONDS = 120
PROFILE = "tiny.toml"
HOW = ("--no-prefect", "--workers", "2", "--set", "execution.retry_pause=0")
PROCESSES = (*HOW, "--set", "execution.runner=processes")
_WAITING = re.compile(r"-> FLOCK +ADVISORY +WRITE (\d+) \S+:(\d+) 0 EOF")

# It does its work when it is imported, and has no `if __name__ == "__main__"`.
PROGRAM = """
import pathlib, sys
sys.path.append(pathlib.Path("ignored"))
import tokmill
print("begun")
told = set()
run = tokmill.run("tiny.toml", store="store", prefect=False, workers=2,
    execution={"runner": "processes"},
    reporter=lambda event, state: told.add((event.what, event.task[:6] or event.text)))
print(run.profile.name, ("progressed", "encode") in told)
"""

# What is imported before a program, from where it is found: by a process of a program without a file, too.
REFUSING = """
import os
fork = os.fork
def refuse():
    os.fork = fork
    raise BlockingIOError(11, "")
os.fork = refuse
"""
TELLING = 'print(sum("no process can be started (Resource" in text for _, text in told))'


@pytest.fixture(scope="module")
def on_threads(tmp_path_factory: pytest.TempPathFactory) -> Tokmill:
    """A run on threads; not to be changed."""
    tokmill = Tokmill(tmp_path_factory.mktemp("threads"), clean_environment())
    tokmill.run(write_project(tokmill.folder), *HOW)
    return tokmill


@pytest.fixture
def tokmill(tmp_path: Path) -> Tokmill:
    """The same project without a run."""
    write_project(tmp_path)
    return Tokmill(tmp_path, clean_environment())


@contextmanager
def stuck(tokmill: Tokmill, on_threads: Tokmill) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """A run, and its process that waits for the lock of a shard, which is free after the block."""
    made = json.loads(min(on_threads.store.glob("encoded_shard/*/record.json")).read_bytes())
    lock = Store.open(tokmill.store).layout.lock_of(made["kind"], made["fingerprint"])
    assert lock.try_acquire()
    running, until = tokmill.start("run", PROFILE, "--json", *PROCESSES), time.monotonic() + WAIT_SECONDS
    try:
        while not (found := waiting_for(lock.path)):
            assert running.poll() is None
            assert time.monotonic() < until
            time.sleep(0.02)
        yield running, found[0]
    except BaseException:
        running.kill()
        running.communicate()
        raise
    finally:
        lock.release()


def waiting_for(lock: Path) -> list[int]:
    """Return the processes that wait for a lock."""
    found = _WAITING.findall(Path("/proc/locks").read_text("ascii"))
    return [int(process) for process, inode in found if int(inode) == lock.stat().st_ino]


def test_a_program_without_a_main_guard_runs_once_and_makes_what_threads_make(
    tokmill: Tokmill, on_threads: Tokmill
) -> None:
    (tokmill.folder / "program.py").write_text(PROGRAM)
    command, how = [sys.executable, "program.py"], {"cwd": tokmill.folder, "env": tokmill.environment}
    done = subprocess.run(command, capture_output=True, text=True, check=False, **how)
    assert (done.stdout, done.stderr) == ("begun\ntiny True\n", "")
    assert digests(tokmill.store) == digests(on_threads.store)


def test_a_process_that_the_system_refuses_costs_an_attempt_of_a_program_without_a_file(
    tokmill: Tokmill, on_threads: Tokmill
) -> None:
    (tokmill.folder / "sitecustomize.py").write_text(REFUSING)
    program = PROGRAM.replace('"processes"', '"processes", "retry_pause": 0') + TELLING
    command, how = [sys.executable, "-c", program], {"cwd": tokmill.folder, "env": tokmill.environment}
    done = subprocess.run(command, capture_output=True, text=True, check=False, **how)
    assert (done.stdout, done.stderr) == ("begun\ntiny True\n1\n", "")
    assert digests(tokmill.store) == digests(on_threads.store)


def test_a_killed_process_costs_its_shard_one_attempt(tokmill: Tokmill, on_threads: Tokmill) -> None:
    with stuck(tokmill, on_threads) as (running, waiting):
        assert waiting != running.pid
        os.kill(waiting, signal.SIGKILL)
    outcome = finished(running)
    assert outcome.document["num_made"] == outcome.document["num_tasks"]
    assert f"its process {waiting} was killed (SIGKILL)" in outcome.err
    assert digests(tokmill.store) == digests(on_threads.store)
    assert not left_after(0, "TOKMILL_STORE", str(tokmill.store))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_end_of_a_run_ends_its_processes(number: int, tokmill: Tokmill, on_threads: Tokmill) -> None:
    with stuck(tokmill, on_threads) as (running, _):
        os.kill(running.pid, number)
        code = finished(running).code
        left = left_after(5, "TOKMILL_STORE", str(tokmill.store))
    assert (code, left) == (-number if number == signal.SIGKILL else 128 + number, set())
    tokmill.run(PROFILE, *HOW)
    assert digests(tokmill.store) == digests(on_threads.store)


def test_a_warning_is_given_once_and_an_error_is_what_it_is_on_threads(tokmill: Tokmill) -> None:
    pattern, limit = r"train.split_pattern=(\S)\1|\S+|\s+", "execution.timeouts.audit=0.0001s"
    said = [tokmill("run", PROFILE, *how, "--set", pattern, "--set", limit) for how in (PROCESSES, HOW)]
    assert said[0].err.partition("count[*]")[0].count("runs through the regex package") == 1
    assert "it was stopped after 0.0001s, its time limit" in said[0].err
    assert (said[0].code, said[0].err.splitlines()[-1]) == (said[1].code, said[1].err.splitlines()[-1])
