"""The commands that a run prints at its end work, whatever part of the DAG it made."""

import shlex
from pathlib import Path

import pytest

from tests.test_flows.corpora import write_project
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


@pytest.mark.parametrize("until", ["corpus", "counts", "balance", "tokenizer", "encoded", ""])
@pytest.mark.parametrize("settings", [WHOLE, ("--set", "holdout.share=0.2")], ids=["whole", "held-out"])
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
        if arguments[0] != "run":
            assert main(arguments) == 0, capsys.readouterr().err
