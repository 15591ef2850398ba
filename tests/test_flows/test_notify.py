"""Who is told how a run ended: a real web server, real commands, and a run that none of them can change."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.test_flows.commands import clean_environment
from tests.test_flows.corpora import write_project
from tests.test_flows.processes import left_after
from tests.test_flows.receiver import TOKEN, Receiver, receiving
from tests.test_flows.test_direct import of_one, run_states
from tokmill.flows.errors import ProfileError, RunError
from tokmill.flows.profile import Profile, load_profile
from tokmill.flows.run import api
from tokmill.flows.run.announcing import announcing
from tokmill.flows.run.direct import run_directly
from tokmill.flows.run.machine import Machine
from tokmill.flows.run.progress import Silent
from tokmill.tasks.core.errors import GateError
from tokmill.tasks.core.stage import Outcome, Params

WEBHOOK = "notify.webhook=env:HOOK"
SLEEP = "import time; time.sleep(600)"
WRITE = "import os, sys, json; told = {k: v for k, v in os.environ.items() if k.startswith('TOKMILL_')}; "
WRITE += "json.dump([sys.argv[2:], told, json.load(sys.stdin)], open(sys.argv[1], 'w'))"


class Noting(Silent):
    """Keeps the notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        """Keep it."""
        self.notes.append(text)


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """A web server whose address is in the variable HOOK."""
    with receiving() as received:
        monkeypatch.setenv("HOOK", received.url)
        yield received


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small project."""
    folder = tmp_path_factory.mktemp("project")
    write_project(folder, num_documents=30)
    return folder


def succeed(params: Params, *, out: Path) -> Outcome:
    """Publish nothing of interest."""
    return Outcome(metrics={})


def one_task(
    store: Path, *overrides: str, run: Any = succeed, told: Noting | None = None, machine_store: str = ""
) -> None:
    """Run one task, with `[notify]` as the overrides have it."""
    profile, reporter = load_profile("smoke", overrides), told or Noting()
    machine = Machine.of(profile.execution, store=str(store), workers=1)
    with announcing(profile, str(store), reporter.note):
        run_directly(profile, machine, reporter, of_one(run))


def test_a_run_that_completes_is_told_with_its_figures_and_artifacts(
    receiver: Receiver, project: Path, tmp_path: Path
) -> None:
    profile = load_profile(project / "tiny.toml", [WEBHOOK])
    first = api.run(profile, store=tmp_path, prefect=False)
    again = api.run(profile, store=tmp_path)  # found wholly in the store

    made, found = receiver.messages
    assert (made["schema"], made["event"], made["state"], made["message"]) == (
        1,
        "completion",
        "completed",
        "",
    )
    assert [made["run"], found["run"]] == [first.run_id, again.run_id]
    assert (made["profile"], made["store"], made["prefect"]) == ("tiny", str(tmp_path), None)
    assert made["tasks"] == {"made": first.num_made, "cached": 0, "waited": 0}
    assert found["tasks"] == {"made": 0, "cached": again.num_cached, "waited": 0}
    assert made["gate"] == {"verdict": "none", "limits": []}
    assert made["figures"]["packed"]["num_sequences"] > 0
    (packed,) = [each for each in made["artifacts"] if each["kind"] == "packed"]
    assert packed["artifact"] == "packed/tiny@v1"
    assert packed["content_digest"] == first.refs["packed"].content_digest
    assert packed["how"] == "made"
    assert packed["bytes"] > 0
    assert made["began"] < made["ended"]
    assert made["seconds"] > 0


def test_a_failure_names_the_task_that_failed(receiver: Receiver, tmp_path: Path) -> None:
    def run(params: Params, *, out: Path) -> Outcome:
        raise ValueError("this stage always fails")

    with pytest.raises(RunError):
        one_task(tmp_path, WEBHOOK, run=run)

    (told,) = receiver.messages
    assert (told["event"], told["state"]) == ("failure", "failed")
    assert told["message"] == "one: this stage always fails"
    assert told["failed"] == {"stage": "one", "task": "one", "error": "ValueError"}
    assert (told["gate"], told["artifacts"]) == (None, [])


@pytest.mark.parametrize(("on_failure", "state"), [("fail", "failed"), ("warn", "completed")])
def test_a_gate_that_fails_is_told_with_its_limits(
    on_failure: str, state: str, receiver: Receiver, project: Path, tmp_path: Path
) -> None:
    gate = [f"audit.on_failure={on_failure}", "audit.min_bytes_per_token=1000"]
    profile = load_profile(project / "tiny.toml", [WEBHOOK, 'notify.on=["gate"]', *gate])
    try:
        api.run(profile, store=tmp_path, prefect=False)
    except GateError:
        assert on_failure == "fail"

    (told,) = receiver.messages
    assert (told["event"], told["state"]) == ("gate", state)
    assert told["gate"]["verdict"].startswith("failed")
    limit = told["gate"]["limits"][0]
    assert (limit["limit"], limit["threshold"], limit["passed"]) == ("min_bytes_per_token", 1000, False)
    assert (told["failed"] or {"task": "audit"})["task"] == "audit"


def test_ends_that_nobody_wants_to_hear_of_are_not_told(receiver: Receiver, tmp_path: Path) -> None:
    one_task(tmp_path, WEBHOOK, 'notify.on=["failure", "gate"]')

    assert receiver.bodies == []


def test_a_run_that_cannot_even_begin_is_told(
    receiver: Receiver, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:1/api")
    (tmp_path / "store").write_text("a file where the store should be")

    with pytest.raises(Exception, match="store"):
        api.run(load_profile(project / "tiny.toml", [WEBHOOK]), store=tmp_path / "store" / "below")

    (told,) = receiver.messages
    assert (told["event"], told["state"], told["run"]) == ("failure", "failed", None)


def test_an_interrupted_run_is_told_as_cancelled(receiver: Receiver, tmp_path: Path) -> None:
    def run(params: Params, *, out: Path) -> Outcome:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        one_task(tmp_path, WEBHOOK, run=run)

    (told,) = receiver.messages
    assert (told["event"], told["state"]) == ("failure", "cancelled")


def test_a_server_that_fails_for_a_while_is_tried_again(receiver: Receiver, tmp_path: Path) -> None:
    receiver.answers, told = [500, 429, 204], Noting()

    one_task(tmp_path, WEBHOOK, told=told)

    assert len(receiver.bodies) == 3
    assert len(set(receiver.bodies)) == 1
    assert told.notes == []


@pytest.mark.parametrize(
    ("answer", "num_attempts", "problem"),
    [
        (500, 2, "it answered 500"),
        (404, 1, "it answered 404"),
        (302, 1, "it answered 302"),
        (0, 2, "TimeoutError"),
    ],
)
def test_a_webhook_that_does_not_take_the_message_changes_nothing(
    answer: int, num_attempts: int, problem: str, receiver: Receiver, tmp_path: Path
) -> None:
    receiver.answers, told = [answer], Noting()

    one_task(tmp_path, WEBHOOK, "notify.attempts=2", "notify.timeout=0.3", told=told)

    assert len(receiver.bodies) == num_attempts
    assert told.notes == [f"notify: webhook env:HOOK failed ({problem}); the run is not affected"]
    assert run_states(tmp_path) == [("completed", "")]


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("", "environment variable HOOK is not set"),
        (f"ftp://127.0.0.1/{TOKEN}", "is not a URL"),
        (f"http://127.0.0.1:1/{TOKEN}", "ConnectionRefusedError"),
        (f"http://127.0.0.1:port/{TOKEN}", "InvalidURL"),
        (f"http://127.0.0.1/{TOKEN} {TOKEN}\n", "InvalidURL"),
    ],
)
def test_an_address_is_never_in_a_warning(
    address: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK", address)
    told = Noting()

    one_task(tmp_path, WEBHOOK, "notify.attempts=1", told=told)

    (note,) = told.notes
    assert problem in note
    assert TOKEN not in note


def test_the_store_has_nothing_of_whom_a_run_tells(receiver: Receiver, project: Path, tmp_path: Path) -> None:
    command = f"notify.command={json.dumps([sys.executable, '-c', 'pass', TOKEN])}"

    api.run(load_profile(project / "tiny.toml", [WEBHOOK, command]), store=tmp_path, prefect=False)

    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.parent.name == "runs" for path in files)
    assert not [path for path in files if TOKEN.encode() in path.read_bytes()]
    assert not [path for path in files if b"env:HOOK" in path.read_bytes()]


def test_a_command_gets_the_message_and_some_variables(tmp_path: Path) -> None:
    written, store = tmp_path / "written.json", tmp_path / "store"
    command = [sys.executable, "-c", WRITE, str(written), "$HOME; *"]

    one_task(store, f"notify.command={json.dumps(command)}")

    arguments, variables, told = json.loads(written.read_text())
    assert arguments == ["$HOME; *"]  # no shell has seen it
    assert told["event"] == "completion"
    assert variables["TOKMILL_RUN"] == told["run"]
    assert {variables[f"TOKMILL_{name}"] for name in ("EVENT", "STATE", "PROFILE", "STORE")} == {
        "completion",
        "completed",
        "smoke",
        str(store),
    }


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        ("raise SystemExit(7)", "exit code 7"),
        (f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SLEEP!r}])", "was killed"),
    ],
)
def test_a_command_that_fails_or_hangs_changes_nothing(
    program: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STARTED_BY", str(tmp_path))
    told, command = Noting(), [sys.executable, "-c", program]

    one_task(
        tmp_path, f"notify.command={json.dumps(command)}", "notify.attempts=1", "notify.timeout=2", told=told
    )

    (note,) = told.notes
    assert problem in note
    assert run_states(tmp_path) == [("completed", "")]
    assert left_after(20, "STARTED_BY", str(tmp_path)) == set()


def test_a_command_that_does_not_exist_is_a_warning(tmp_path: Path) -> None:
    told = Noting()

    one_task(tmp_path, 'notify.command=["/nowhere/tell"]', told=told)

    assert "cannot be started: No such file or directory" in told.notes[0]


def test_the_address_itself_is_refused_and_not_repeated() -> None:
    with pytest.raises(ProfileError, match=r"env:VARIABLE") as refused:
        load_profile("smoke", [f'notify.webhook="https://hooks.example.com/{TOKEN}"'])

    assert TOKEN not in str(refused.value)


def test_a_section_may_be_fixed_in_its_file() -> None:
    for override in ('notify.command=["true"]', '"notify".command=["true"]', '"notif\\u0079".on=["gate"]'):
        with pytest.raises(ProfileError, match="cannot be set for one run"):
            load_profile("smoke", [override], fixed={"notify"})

    assert isinstance(load_profile("smoke", ["pack.sequence_length=64"], fixed={"notify"}), Profile)


WORKERS_RUN = """
import sys
from prefect.blocks.system import Secret
from tokmill.flows.run.flow import build_corpus
Secret(value=sys.argv[1]).save("own-webhook", overwrite=True)
build_corpus("told.toml", store="store")
"""


@pytest.mark.server
def test_a_run_that_a_worker_starts_is_told_at_the_address_in_a_secret_block(
    prefect_server: dict[str, str], receiver: Receiver, tmp_path: Path
) -> None:
    write_project(tmp_path, num_documents=30)
    told = 'extends = "tiny.toml"\n[notify]\nwebhook = "block:own-webhook"\n'
    (tmp_path / "told.toml").write_text(told)
    code = [sys.executable, "-c", WORKERS_RUN, receiver.url]

    done = subprocess.run(
        code,
        cwd=tmp_path,
        env=clean_environment(**prefect_server),
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    (message,) = receiver.messages
    assert message["event"] == "completion"
    assert message["prefect"].endswith(f"/flow-run/{message['run']}")
    assert TOKEN not in done.stderr + done.stdout
