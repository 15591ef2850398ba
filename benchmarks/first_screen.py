"""What a newcomer sees of a first run: the screen as time goes on, and how long nothing new comes.

    python benchmarks/first_screen.py
    python benchmarks/first_screen.py --piped smoke --no-prefect

Arguments are those of `tokmill run`. It starts in a new home, without machine code, in a terminal of 100 × 40
or with a pipe in its place; seconds are those since its start. *News* is what changes besides digits and the
spinner. The interpreter that runs this needs tokmill and pyte.
"""

import argparse
import functools
import itertools
import os
import re
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import pyte

_COLUMNS, _ROWS = 100, 40
_MOMENTS = 0, 5, 15, 30, 45
_SHOWN = 3
_news = functools.partial(re.compile(r"[\d.,⠀-⣿]+").sub, "")
_OWN = "TOKMILL_", "PREFECT_", "XDG_", "COLUMNS", "LINES", "NO_COLOR", "CI"


class Screen(NamedTuple):
    """What was seen from a second on."""

    second: float
    text: str


def main() -> None:
    """Record a run and print what it showed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--piped", action="store_true", help="write into a pipe instead of a terminal")
    asked, arguments = parser.parse_known_args()
    arguments = arguments or ["quickstart"]
    seen = list(_recorded(arguments, asked.piped))
    end = seen[-1].second
    print(f"tokmill run {' '.join(arguments)}{', piped' * asked.piped}: {end:.1f} s")
    for moment in [*(moment for moment in _MOMENTS if moment < end), end]:
        shown = next(screen.text for screen in reversed(seen) if screen.second <= moment)
        print(f"\n{moment:.0f} s:\n\n```\n{shown}\n```")
    print("\n| for s | from s | nothing | last line |\n| ---: | ---: | --- | --- |")
    for what, form in (("changed", str), ("was news", _news)):
        for seconds, screen in _longest(seen, form):
            last = (screen.text.splitlines() or [""])[-1].strip()
            print(f"| {seconds:.1f} | {screen.second:.1f} | {what} | {last} |")


def _recorded(arguments: Sequence[str], piped: bool) -> Iterator[Screen]:
    """Run `tokmill run` and yield its screen whenever it changes, and at its end."""
    drawn = pyte.Screen(2 * _COLUMNS, 10 * _ROWS) if piped else pyte.Screen(_COLUMNS, _ROWS)
    drawn.set_mode(pyte.modes.LNM)  # a pipe's lines end without a carriage return
    terminal, text = pyte.ByteStream(drawn), ""
    with tempfile.TemporaryDirectory() as home:
        began = time.monotonic()
        yield Screen(0.0, text)
        for output in _outputs(arguments, home, piped):
            terminal.feed(output)
            before, text = text, "\n".join(map(str.rstrip, drawn.display)).rstrip()
            if text != before:
                yield Screen(time.monotonic() - began, text)
        yield Screen(time.monotonic() - began, text)


def _outputs(arguments: Sequence[str], home: str, piped: bool) -> Iterator[bytes]:
    reading, writing = os.pipe() if piped else os.openpty()
    if not piped:
        termios.tcsetwinsize(writing, (_ROWS, _COLUMNS))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OWN)}
    environment, null = {**kept, "HOME": home, "TERM": "xterm-256color"}, subprocess.DEVNULL
    command = [sys.executable, "-m", "tokmill", "run", *arguments]
    run = subprocess.Popen(command, stdin=null, stdout=writing, stderr=writing, cwd=home, env=environment)
    os.close(writing)
    try:
        while output := os.read(reading, 1 << 16):
            yield output
    except OSError:  # the end of a terminal
        pass
    if run.wait():
        raise SystemExit(f"tokmill ended with {run.returncode}")


def _longest(seen: Sequence[Screen], form: Callable[[str], str]) -> list[tuple[float, Screen]]:
    """Return the longest times within which the form of the screen was the same, with its beginning."""
    firsts = [next(same) for _, same in itertools.groupby(seen, lambda screen: form(screen.text))]
    after = [*(screen.second for screen in firsts[1:]), seen[-1].second]
    spans = [(end - screen.second, screen) for screen, end in zip(firsts, after, strict=True)]
    return sorted(spans, key=lambda one: -one[0])[:_SHOWN]


if __name__ == "__main__":
    main()
