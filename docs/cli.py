"""Write docs/cli.md from the commands' help.

    python docs/cli.py

A section is made up to the end of its examples; what follows there, until the next heading, is written by
hand and kept. `python docs/refresh.py docs/cli.md` runs the commands that the page shows.
"""

import contextlib
import io
import os
import re
from collections.abc import Iterator
from pathlib import Path

from tokmill.flows.commands.main import main

PAGE = Path(__file__).with_name("cli.md")
SECTION = re.compile(r"^### `(.*?)`\n.*?```sh\n.*?^```\n(.*?)(?=^##|\Z)", re.DOTALL | re.MULTILINE)
PANEL = re.compile(r"^╭─ (.+?) ─+╮\n(.*?)^╰", re.DOTALL | re.MULTILINE)
SAID = re.compile(r" \[required\]| \[env var: \w+\]|, e\.g\. [^;,.]*(?=\.$)")
SEVERAL = re.compile(r"; (may be given several times|repeatable)")
MOST_EXAMPLES = 1
COMMON = ("--help", "--json", "--store")  # the page's head describes them


def made(page: str) -> str:
    """Return the page with its sections made again, and what was written by hand."""
    by_hand, first = dict(SECTION.findall(page)), dict[str, str]()
    parts = [page.partition("\n## ")[0]]
    for panel, lines in _panels(_help()):
        if panel != "Options":
            parts.append(f"## {panel}")
            parts += [part for line in lines for part in _sections(by_hand, first, _cells(line)[0])]
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def _sections(by_hand: dict[str, str], first: dict[str, str], *words: str) -> Iterator[str]:
    """Yield a command's section, and those of the commands below it.

    `first` has the command that describes an item; the others only name it.
    """
    text = _help(*words)
    panels = dict(_panels(text))
    below = [_cells(line)[0] for line in panels.pop("Commands", ())]
    options = [line for lines in panels.values() for line in lines if not set(COMMON) & set(line.split())]
    if options or not below:
        ((usage, purpose),) = re.findall(r"Usage: (.*)\n\s*(.*\S)", text)
        heading = _heading(" ".join(("tokmill", *words)), usage)
        examples = re.findall(r"^ *\$ (.*\S)", text, re.MULTILINE)
        yield f"### `{heading}`"
        yield purpose
        yield "\n".join(_items(options, first, f"tokmill {' '.join(words)}"))
        yield "\n".join(["```sh", *examples[:MOST_EXAMPLES], "```"])
        yield by_hand.get(heading, "")
    for name in below:
        yield from _sections(by_hand, first, *words, name)


def _help(*words: str) -> str:
    """Return what `tokmill … --help` prints, unwrapped."""
    os.environ["COLUMNS"] = "1000"
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        main([*words, "--help"])
    return printed.getvalue()


def _panels(text: str) -> Iterator[tuple[str, list[str]]]:
    for name, body in PANEL.findall(text):
        yield name, [re.sub(" {2,}", "  ", line.strip(" │")) for line in body.splitlines()]


def _cells(line: str) -> list[str]:
    return re.split(r" {2,}", line.removeprefix("*").strip())


def _heading(command: str, usage: str) -> str:
    """Return a command with its arguments: `tokmill tag ARTIFACT ALIAS`."""
    arguments = re.sub(r"\[OPTIONS\]|[{}]|COMMAND \[ARGS\]\.\.\.", "", usage.removeprefix(command))
    tidy = re.sub(r"\[(\[.*?\]\.\.\.)\]\.\.\.", r"\1", arguments).replace("…...", "…")
    return f"{command} {' '.join(tidy.upper().split())}".strip()


def _items(lines: list[str], first: dict[str, str], command: str) -> Iterator[str]:
    """Yield options and arguments as items of a list, without the types that say nothing."""
    repeated: dict[str, list[str]] = {}
    for line in lines:
        *names, meaning = _cells(line)
        if line in first:
            repeated.setdefault(first[line], []).append(f"`{names[0]}`")
            continue
        first[line] = command
        shown = " ".join(name for name in names if name[1:-1] not in {"bool", "str", "path", "list[str]"})
        yield f"- `{shown}`: {SEVERAL.sub(' (repeatable)', SAID.sub('', meaning)).strip()}"
    for other, same in repeated.items():
        yield f"- {', '.join(same)}: as for `{other}`."


if __name__ == "__main__":
    PAGE.write_text(made(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
