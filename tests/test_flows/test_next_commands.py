"""The commands that are printed work, and give what is said of them."""

import ast
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from tests.test_flows.corpora import write_project
from tokmill.flows.cli.app import app
from tokmill.flows.commands.main import main

WHOLE: tuple[str, ...] = ()


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("next")
    write_project(folder, num_documents=60)
    return folder


def printed(out: str) -> list[list[str]]:
    """The words of the commands at the end of a run's output, without what is said of each."""
    lines = out.rpartition("\n\n")[2].splitlines()
    return [shlex.split(line.partition("  ")[0]) for line in lines if line.startswith("tokmill ")]


@pytest.mark.parametrize(
    "until",
    [
        "corpus",
        "tokenizer",
        "",
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("counts", "balance", "encoded")),
    ],
)
@pytest.mark.parametrize(
    "settings",
    [WHOLE, pytest.param(("--set", "holdout.share=0.2"), marks=pytest.mark.slow)],
    ids=["whole", "held-out"],
)
def test_each_command_after_a_run_works(
    project: Path,
    until: str,
    settings: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(project)
    monkeypatch.setenv("COLUMNS", "300")
    part = ("--until", until) if until else ()
    assert main(["run", "tiny.toml", "--no-prefect", *settings, *part]) == 0
    commands = printed(capsys.readouterr().out)

    assert commands
    for _, *arguments in commands:
        if arguments[0] == "run":  # the rest is cached
            assert main([*arguments, "--json", "--no-prefect"]) == 0
            tasks = json.loads(capsys.readouterr().out)["tasks"]
            made = {task["task"].partition("[")[0] for task in tasks if task["how"] != "cached"}
            assert {"pack"} <= made <= {"pack", "pack.validation", "card"}
        else:
            assert main(arguments) == 0, capsys.readouterr().err
            said = capsys.readouterr().out
            assert said
            assert "--read" not in arguments or "| many |" in said  # the composition, and not its record


def test_commands_after_a_cached_run_are_about_its_own_artifacts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_project(tmp_path, num_documents=30)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    for length in (64, 128, 64):
        assert main(["run", "tiny.toml", "--no-prefect", "--set", f"pack.sequence_length={length}"]) == 0

    commands = [" ".join(words) for words in printed(capsys.readouterr().out)]

    assert "tokmill lineage packed/tiny@v1" in commands
    assert any("--set pack.sequence_length=32" in command for command in commands)


def test_every_command_that_a_message_names_is_there_with_its_options(checkout: Path) -> None:
    root = get_command(app)
    named = 0
    for path in (each for part in ("flows", "tasks") for each in (checkout / part).rglob("*.py")):
        for command in commands_named(path.read_text("utf-8")):
            found, words = root, command.split()[1:]
            while words and words[0] in getattr(found, "commands", {}):
                found = found.commands[words.pop(0)]  # type: ignore[attr-defined]
            options = {
                each for parameter in found.params for each in (*parameter.opts, *parameter.secondary_opts)
            }
            unknown = (
                {word.partition("=")[0] for word in words if word.startswith("--")} - options - {"--help"}
            )
            assert not unknown, f"{path}: `{command}`"
            assert found is not root or not words or words[0].startswith("--"), f"{path}: `{command}`"
            named += 1

    assert named > 100


def commands_named(source: str) -> Iterator[str]:
    """Yield the commands in back quotes in the texts of a module; values that are put in are left out."""
    for node in ast.walk(ast.parse(source)):
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        given = [part.value if isinstance(part, ast.Constant) else "X" for part in parts]
        text = "".join(part for part in given if isinstance(part, str))
        yield from re.findall(r"`(tokmill [^`]+)`", text)
