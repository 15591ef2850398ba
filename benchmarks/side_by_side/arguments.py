"""What all benchmark commands are asked with. Standard library only, so that `--help` works anywhere."""

import argparse
from collections.abc import Sequence
from pathlib import Path


def parser(description: str | None, *, texts: Sequence[str], sides: Sequence[str]) -> argparse.ArgumentParser:
    """Make a parser with the options that every command has.

    Args:
        description: the command's docstring, whose examples `--help` shows.
        texts: names for `--text`.
        sides: names for `--peer`, ours left out.
    """
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument(
        "files", nargs="*", type=Path, help="texts of your own: .jsonl, .jsonl.zst, else plain text"
    )
    made.add_argument("--text", action="append", default=[], metavar="NAME", help=f"of {', '.join(texts)}")
    made.add_argument(
        "--peer", action="append", choices=sides, default=[], metavar="NAME", help=", ".join(sides)
    )
    made.add_argument(
        "--megabytes", type=float, metavar="N", help="of each text at most; documents stay whole"
    )
    made.add_argument(
        "--repeat", type=_at_least_one, default=3, metavar="N", help="rounds; medians are shown"
    )
    made.add_argument(
        "--patience",
        type=float,
        metavar="SECONDS",
        help="a side that has worked for so long on a case gets no further round",
    )
    made.add_argument("--timeout", type=float, metavar="SECONDS", help="a side that takes longer is given up")
    made.add_argument(
        "--out", type=Path, metavar="DIR", help="write the tables (.md), all figures (.json) and plots"
    )
    made.add_argument("--here", action="store_true", help="use this Python and what is installed in it")
    return made


def check_texts(made: argparse.ArgumentParser, options: argparse.Namespace, texts: Sequence[str]) -> None:
    """Refuse names of texts that nobody knows, and files that are not there."""
    known = {part for name in texts for part in name.split("+")}
    for name in options.text:
        if unknown := set(name.split("+")) - known:
            made.error(f"--text {name}: {sorted(unknown)[0]!r} is not known; use one of {', '.join(texts)}")
    for file in options.files:
        if not file.is_file():
            made.error(f"{file}: there is no such file")


def threads(value: str) -> list[int]:
    """Read numbers of threads, e.g. `1,2`."""
    numbers = [int(number) for number in value.split(",")]
    if min(numbers) < 1:
        raise ValueError(value)
    return numbers


def _at_least_one(value: str) -> int:
    if int(value) < 1:
        raise ValueError(value)
    return int(value)
