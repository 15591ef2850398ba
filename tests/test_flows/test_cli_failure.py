"""A command that fails prints one message and nothing after it."""

import io
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.effort import fuzz_seconds
from tests.hostile_names import HOSTILE
from tests.test_tasks.store_stages import ask
from tokmill.flows.cli.app import app
from tokmill.flows.commands.main import main
from tokmill.tasks.store import Store

# What keeps the exception, as Prefect's states do, until the interpreter has ended.
FAILING = """
import sys, threading
import duckdb
from tokmill.flows.cli.app import app
from tokmill.flows.commands.main import main
from tokmill.tasks.core.errors import TaskError

kept = []

@app.command()
def counting():
    try:
        counted()
    except TaskError as error:
        kept.append(error)
        threading.Thread(target=wait_with, args=(kept,), daemon=True).start()
        raise

def counted():
    connection = duckdb.connect()
    rows = connection.execute("SELECT 1")
    raise TaskError("count: it failed")

def wait_with(kept):
    threading.Event().wait()

sys.exit(main(["counting"]))
"""


def test_a_command_that_fails_says_nothing_after_its_message():
    done = subprocess.run(
        [sys.executable, "-c", FAILING], capture_output=True, text=True, check=False, timeout=120
    )

    assert done.returncode == 1
    assert done.stderr.splitlines() == ["tokmill: count: it failed"]


def test_a_limit_that_no_table_can_have_is_refused(capsys):
    assert main(["vocab", "suspects", "usage/own", "--limit", str(1 << 63)]) == 2
    assert "--limit" in capsys.readouterr().err


def test_an_output_that_lacks_a_character_shows_its_number(monkeypatch):
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", out)
    assert main(["profiles"]) == 0
    out.write("é")
    out.flush()
    assert out.buffer.getvalue().endswith(b"\\xe9")


UNTEXT = ("\udc80", "a\udcffb", "--store=\udc80", "--set=a=\udc80")
VALUES = (
    *("9223372036854775807", "9223372036854775808", "-9223372036854775809", "1" * 400, "1e309", "nan", "-0"),
    *(
        "a.b=1",
        "a" * 5000,
        "a." * 50_000 + "b=1",
        "]" * 2000,
        "1," * 3000 + "2",
        "2026-99-99",
        "é",
        "--",
        "@",
    ),
    *("http://[", "s3://", "~nobody/x", "own.toml", "text/one", "latest", "own.txt", ".", *UNTEXT),
    *HOSTILE.values(),
)
# What serves, measures for seconds, or runs: `plan` has the same profiles and settings as `run`.
LEFT_OUT = {"up", "work", "deploy", "doctor", "run"}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a profile, a text and a store of two artifacts."""
    (tmp_path / "own.txt").write_text("some text\n")
    (tmp_path / "own.toml").write_text('[sources.own]\nfiles = ["own.txt"]\n')
    store = Store.open(tmp_path / "store")
    store.tag(store.realize(ask("one")).ref, "prod")
    store.realize(ask("two", text="b"))
    store.list()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOKMILL_STORE", str(tmp_path / "store"))
    return tmp_path


def commands_of(group: Any, *words: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the words of each command, those in groups included, and the command."""
    for name, command in group.commands.items():
        yield (*words, name), command
        yield from commands_of(command, *words, name) if hasattr(command, "commands") else ()


def command_lines(draw: random.Random) -> list[list[str]]:
    """A line for each parameter of each command, in any order, with one value that was not expected there."""
    lines = []
    for words, command in commands_of(typer.main.get_command(app)):
        arguments = [each for each in command.params if each.param_type_name == "argument"]
        options = [each for each in command.params if each.param_type_name == "option" and not each.is_flag]
        for odd in () if words[-1] in LEFT_OUT else (*arguments, *options):
            known = {each: draw.choice(["own.toml", "text/one", "own.txt", "latest"]) for each in arguments}
            values = {**known, odd: draw.choice(VALUES)}
            line = [
                values[each] if each in arguments else f"{each.opts[0]}={values[each]}" for each in values
            ]
            lines.append([*words, *line, *(["--plan"] if words[-1] == "sweep" else [])])
    draw.shuffle(lines)
    return lines


@pytest.mark.slow
def test_no_command_line_ends_in_a_traceback(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seed, until = random.randrange(1 << 32), time.monotonic() + fuzz_seconds(12)
    for line in command_lines(random.Random(seed)):
        code = main(line)
        said = capsys.readouterr().err
        assert code in (0, 1, 2), (seed, line)
        assert "a bug in tokmill" not in said, (seed, line, said)
        if time.monotonic() > until:
            break


@pytest.mark.parametrize(
    ("line", "said"),
    [
        *((["ls", word], "is not UTF-8 text") for word in UNTEXT),
        (["ls", "text/o\0ne"], "is not UTF-8 text"),
        (
            ["vocab", "sweep", "own.toml", "--plan", "--temperature=9223372036854775807"],
            "less than or equal to",
        ),
        (["vocab", "sweep", "own.toml", "--plan", "--vocab-size=" + "9,10," * 5000 + "11"], "at most 1000"),
        (["plan", "own.toml", "--set=" + "a." * 200_000 + "b=1"], "not a dotted key"),
        (["plan", "deep.toml"], "nested more than"),
        (["store", "gc", "--older-than=1e300"], "at most 36,500"),
        (["ls", "--store=file://["], "is not a URL"),
    ],
    ids=range(11),
)
def test_what_takes_a_machine_or_cannot_be_named_is_refused(
    project: Path, capsys: pytest.CaptureFixture[str], line: list[str], said: str
) -> None:
    (project / "deep.toml").write_text("a." * 200_000 + "b = 1")
    assert main(line) in (1, 2)
    assert said in capsys.readouterr().err
