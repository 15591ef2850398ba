"""`tokmill profiles` and `tokmill init`: lists profiles and their keys, and writes a new profile."""

import shlex
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from rich.constrain import Constrain
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text
from typer import Argument, Option

from tokmill.flows.cli.app import Answer, app, command
from tokmill.flows.cli.output import Part, Table, aside, print_parts
from tokmill.flows.errors import UsageError, suggestion

if TYPE_CHECKING:
    from tokmill.flows.profile.fields import Key


@command(app, "tokmill profiles", "tokmill profiles --keys", "tokmill profiles pack", panel="More")
def profiles(
    section: str | None = Argument(None, metavar="SECTION", help="The keys of one table, e.g. pack."),
    keys: bool = Option(False, "--keys", help="List every key of a profile, with its meaning."),
) -> Answer:
    """List the shipped profiles, or the keys of a profile."""
    from tokmill.flows.profile import Profile, load_profile, shipped_folder, shipped_names
    from tokmill.flows.profile.fields import profile_keys

    if keys or section:
        known = profile_keys(Profile)
        wanted = [
            key for key in known if section in (None, key.section, key.section.strip("[").partition(".")[0])
        ]
        if not wanted:
            sections = {key.section for key in known if key.section}
            hint = suggestion(str(section), sections, known_as="sections")
            raise UsageError(f"profiles: there is no section {section}{hint}")
        return Answer([vars(key) for key in wanted], _keys(wanted))
    loaded, folder = [load_profile(name) for name in shipped_names()], shipped_folder()
    rows = [(one.name, str(len(one.sources)), one.description) for one in loaded]
    return Answer(
        [{"path": str(folder / f"{one.name}.toml"), **one.resolved()} for one in loaded],
        [Table(("profile", "sources", "purpose"), rows, right=("sources",), wrap=True)],
    )


def _keys(keys: "list[Key]") -> Iterator[Part]:
    for name, members in groupby(keys, key=lambda key: key.section):
        yield f"[{name}]" if name else "at the top"
        made = Grid.grid(padding=(0, 2))
        made.add_column(style="cyan", no_wrap=True)
        made.add_column(ratio=1)
        for key in members:
            default = f"default {key.default}" if key.default not in {"", "required"} else key.default
            about = Text(", ".join(part for part in (key.kind, default) if part), style="dim")
            made.add_row(key.name, Text(key.description).append("\n").append(about))
        yield Constrain(Padding(made, (0, 0, 1, 2)), 100)


@command(
    app,
    "tokmill init own.toml --source books='data/books/*.txt' --source web='crawl/**/*.jsonl.zst'",
    "tokmill init own.toml --source code='src/**/*.py' --vocab-size 32000 --sequence-length 4096",
)
def init(
    path: Path = Argument(..., metavar="FILE", help="The profile to write, e.g. own.toml."),
    sources: list[str] = Option(..., "--source", metavar="NAME=GLOB", help="A source's files; repeatable."),
    exclude: list[str] | None = Option(None, metavar="GLOB", help="What to leave out; repeatable."),
    encoding: str = Option("utf-8", help="Encoding of the files, e.g. shift_jis."),
    text_columns: list[str] | None = Option(
        None,
        "--text-column",
        metavar="NAME=COLUMN",
        help="The column of a source's documents, e.g. qa=context; default: chosen by its rows.",
    ),
    delimiter: str | None = Option(None, help="Between the fields of CSV files; default: detected."),
    quoting: str = Option("auto", help="Quotes in CSV files: double, backslash, none, escapes."),
    vocab_size: int = Option(32_000, min=257, help="Tokens in the vocabulary."),
    sequence_length: int = Option(2048, min=8, help="Tokens per packed sequence."),
    force: bool = Option(False, "--force", help="Overwrite the file if it exists."),
) -> None:
    """Write a profile for your own files; detects their format.

    Also chooses the column of the text.
    """
    from tokmill.flows.profile.drafting import draft_profile
    from tokmill.flows.run.events import noting_warnings

    with noting_warnings(aside):
        drafted = draft_profile(
            path,
            sources,
            vocab_size=vocab_size,
            sequence_length=sequence_length,
            overwrite=force,
            exclude=exclude or (),
            reading={"encoding": encoding, "delimiter": delimiter, "quoting": quoting},
            text_columns=text_columns or (),
        )
    rows = [(one.name, str(one.num_files), one.seen.options["format"], one.seen.remark) for one in drafted]
    documents = [(one.name, document) for one in drafted for document in one.seen.documents]
    written = shlex.quote(str(path))
    parts: list[Part] = [
        Table(("source", "files", "format", "because"), rows, right=("files",), wrap=True),
        "",
        Table(("source", "a document begins with"), documents),
        f"\nwrote {path}\n\nnext:\n  tokmill plan {written}\n  tokmill run {written}",
    ]
    print_parts(parts)
