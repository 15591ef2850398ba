"""docs/experiments.md: its commands print what it says."""

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path

import pytest

_OF_THE_MOMENT = (
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}\b", "ID"),
    (r"\b[0-9a-f]{12}\b", "DIGEST"),
    (r"\b[0-9a-f]{8}\b", "ID"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?", "TIME"),
    (r"\b(\d+ min )?\d+(\.\d)? s\b", "SPAN"),
    (r"\b\d+(\.\d)? [KM]?i?B\b", "SIZE"),  # records name the machine, and all packages
    (r"\bregex \d[\d.]* →", "regex VERSION →"),
    (r"─+|[ \t]+", " "),  # as wide as what was replaced
    (r" +$", ""),
)


@pytest.fixture(scope="module")
def refreshed(checkout: Path) -> Callable[[str, Path], str]:
    """The function of docs/refresh.py that runs a page's commands."""
    spec = importlib.util.spec_from_file_location("refresh", checkout / "docs" / "refresh.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.refreshed  # type: ignore[no-any-return]


@pytest.mark.slow
def test_the_commands_print_what_the_page_says(
    checkout: Path, refreshed: Callable[[str, Path], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (checkout / "docs" / "experiments.md").read_text(encoding="utf-8")
    monkeypatch.delenv("TOKMILL_STORE", raising=False)
    printed = refreshed(page, tmp_path)
    assert lasting(printed) == lasting(page), "run: python docs/refresh.py docs/experiments.md"


def lasting(text: str) -> list[str]:
    """Return the lines without what every run gives anew: ids, digests, times."""
    for pattern, shown in _OF_THE_MOMENT:
        text = re.sub(pattern, shown, text, flags=re.MULTILINE)
    return text.splitlines()
