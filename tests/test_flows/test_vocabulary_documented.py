"""docs/vocabulary.md: its commands print what it says, and every option of theirs is documented."""

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tokmill.flows.commands.main import main

COMMANDS = ("extend", "trim", "resize")


@pytest.fixture(scope="module")
def page(checkout: Path) -> str:
    return (checkout / "docs" / "vocabulary.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def refreshed(checkout: Path) -> Callable[[str, Path], str]:
    """The function of docs/refresh.py that runs a page's commands."""
    spec = importlib.util.spec_from_file_location("refresh", checkout / "docs" / "refresh.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.refreshed


@pytest.mark.slow
def test_the_commands_print_what_the_page_says(
    page: str, refreshed: Callable[[str, Path], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOKMILL_STORE", raising=False)
    printed = refreshed(page, tmp_path)
    assert without_fingerprints(printed) == without_fingerprints(page), (
        "run: python docs/refresh.py docs/vocabulary.md"
    )


def without_fingerprints(text: str) -> str:
    """Leave out the names of folders, which the version of any stage before may change."""
    return re.sub(r"/[0-9a-f]{16}/", "/…/", text)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_documented(
    page: str, checkout: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert main(["vocab", command, "--help"]) == 0
    printed = capsys.readouterr().out
    assert f"$ tokmill vocab {command}" in printed
    assert f"$ tokmill vocab {command}" in page
    text = page + (checkout / "docs" / "cli.md").read_text(encoding="utf-8")
    options = set(re.findall(r"--[a-z][a-z-]+", printed)) - {"--help"}
    assert not sorted(option for option in options if option not in text)
