"""`tokmill profiles` and `tokmill init`: which profiles there are, and how to get one of one's own."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.app import app, examples
from flows.cli.options import JsonOption
from flows.cli.output import print_json, results, say, table


@app.command(rich_help_panel="Profiles", epilog=examples("tokmill profiles", "tokmill profiles --json"))
def profiles(as_json: JsonOption = False) -> None:
    """List the profiles that ship with tokmill."""
    from flows.profile import load_profile, shipped_folder, shipped_names

    loaded = [load_profile(name) for name in shipped_names()]
    if as_json:
        folder = shipped_folder()
        print_json([{"path": str(folder / f"{one.name}.toml"), **one.resolved()} for one in loaded])
        return
    rows = [(one.name, str(len(one.sources)), one.description) for one in loaded]
    results().print(table(("profile", "sources", "what it is for"), rows, right=("sources",)))


@app.command(
    rich_help_panel="Profiles",
    epilog=examples(
        "tokmill init own.toml --source books='data/books/*.txt' --source web='crawl/**/*.jsonl.zst'",
        "tokmill init own.toml --source code='src/**/*.py' --vocab-size 32000 --sequence-length 4096",
    ),
)
def init(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The profile to write, e.g. own.toml.")],
    sources: Annotated[
        list[str],
        typer.Option(
            "--source", metavar="NAME=GLOB", help="A source and its files; may be given several times."
        ),
    ],
    vocab_size: Annotated[int, typer.Option(min=257, help="Tokens in the vocabulary.")] = 32_000,
    sequence_length: Annotated[int, typer.Option(min=8, help="Tokens in a packed sequence.")] = 2048,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if it exists.")] = False,
) -> None:
    """Write a profile for your own files: finds them, looks at what they hold, and says what to run next."""
    from flows.profile.drafting import draft_profile

    drafted = draft_profile(
        path, sources, vocab_size=vocab_size, sequence_length=sequence_length, overwrite=force
    )
    rows = [(one.name, str(one.num_files), one.seen.options["format"], one.seen.remark) for one in drafted]
    results().print(table(("source", "files", "format", "because"), rows, right=("files",)))
    say(f"\nwrote {path}\n\nnext:\n  tokmill plan {path}\n  tokmill run {path}")
