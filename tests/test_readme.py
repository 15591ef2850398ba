"""The README stays true: its links lead somewhere, its commands exist, and CI runs its tests."""

import re
from pathlib import Path

import pytest
import typer.main

import tokmill.flows.commands  # noqa: F401 - importing the commands registers them
from tokmill.flows.cli.app import app

LINK = re.compile(r"\]\(([^)#]+)\)")
SHELL = re.compile(r"```sh\n(.*?)```", re.DOTALL)
COMMAND = re.compile(r"\btokmill (\w+)((?: [^`\n#]*)?)")


@pytest.fixture
def readme(checkout: Path) -> str:
    return (checkout / "README.md").read_text(encoding="utf-8")


def test_links_lead_to_files_that_exist(readme: str, checkout: Path) -> None:
    local = [link for link in LINK.findall(readme) if "://" not in link]

    assert local
    assert [link for link in local if not (checkout / link).exists()] == []


def test_the_first_two_commands_are_the_quickstart_and_the_tests(readme: str) -> None:
    quickstart, tests = SHELL.findall(readme)[:2]

    assert quickstart.rstrip().endswith("pip install --quiet . && .venv/bin/tokmill run quickstart")
    assert tests.rstrip().endswith("pip install --quiet -e '.[test]' && .venv/bin/python -m pytest")


def test_continuous_integration_runs_the_same_test_command(checkout: Path) -> None:
    script = (checkout / ".ci" / "run").read_text(encoding="utf-8")

    assert "\nequip venv python3 -e '.[test]'\n" in script
    assert '\nPATH="$folder/venv/bin:$PATH" in_time "the test command" python -m pytest ||' in script


def test_commands_and_options_exist(readme: str) -> None:
    known = typer.main.get_group(app).commands
    named = COMMAND.findall(readme)

    assert named
    for name, rest in named:
        assert name in known, name
        options = {option for parameter in known[name].params for option in parameter.opts}
        assert {word for word in rest.split() if word.startswith("--")} <= options, name
