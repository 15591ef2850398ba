"""A report: sections are printed as they come, and written as Markdown, figures and plots if asked for."""

import importlib
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from side_by_side.environment import not_installed
from side_by_side.machine import describe
from side_by_side.names import OURS
from side_by_side.outcomes import Outcome
from side_by_side.tables import notes


class Report:
    """What one command has to say.

    Args:
        name: of the command; the files are called after it.
        sides: that take part.
        folder: where files go, if anywhere.
    """

    def __init__(self, name: str, sides: Sequence[str], folder: Path | None) -> None:
        self._name = name
        self._folder = folder
        self._lines: list[str] = []
        self._machine = describe(list(sides))
        self._outcomes: list[Outcome] = []
        self._say(f"# {name}\n")
        self._say("\n".join(f"- {key}: {value}" for key, value in self._machine.items()) + "\n")
        for missing, why in not_installed().items():
            self._say(f"{missing} could not be installed and is left out: {why}\n")

    def section(self, title: str, body: str) -> None:
        """Print a section."""
        self._say(f"## {title}\n\n{body}\n")

    def add(self, outcomes: Sequence[Outcome]) -> None:
        """Keep figures for the file, and print what does not count among them."""
        self._outcomes += outcomes
        remarks = notes(outcomes)
        if remarks:
            self._say("Not in the ratios:\n\n" + "\n".join(remarks) + "\n")

    def finish(self, plot: Callable[[Any], Any]) -> int:
        """Write the files, and return the exit status: 1 if any result of ours was wrong.

        Args:
            plot: draws a figure with the module `plots`, which is imported only here: it needs matplotlib.
        """
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            path = self._folder / self._name
            path.with_suffix(".md").write_text("\n".join(self._lines))
            data = {"machine": self._machine, "outcomes": [each.as_json() for each in self._outcomes]}
            path.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n")
            drawn = plot(importlib.import_module("side_by_side.plots"))
            if drawn is not None:
                drawn.savefig(path.with_suffix(".png"), dpi=160)
                drawn.savefig(path.with_suffix(".svg"))
            print(f"written to {path}.*", file=sys.stderr)
        wrong = [each for each in self._outcomes if each.side in OURS and not each.counts]
        for each in wrong:
            print(f"WRONG: {each.side}, {each.case}: {each.failure or each.verdict}", file=sys.stderr)
        return 1 if wrong else 0

    def _say(self, text: str) -> None:
        self._lines.append(text)
        print(text, flush=True)


def progress(*words: object) -> None:
    """Say on standard error what is being measured."""
    print("measuring", *words, file=sys.stderr, flush=True)
