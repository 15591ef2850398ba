"""`tokmill compare`: several tokenizers on the same text, side by side."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tokmill.flows.cli.app import app, examples
from tokmill.flows.cli.options import JsonOption, StoreOption
from tokmill.flows.cli.output import draw, print_json, say, table
from tokmill.flows.errors import UsageError

if TYPE_CHECKING:
    from tokmill.tokenizer import Tokenizer

_COLUMNS = {
    "bytes_per_token": ("bytes per token", "{:.3f}"),
    "fertility": ("tokens per word", "{:.3f}"),
    "whole_share": ("whole words", "{:.1%}"),
    "relative_length": ("length", "{:.3f}"),
    "bits_per_byte": ("bits per byte", "{:.3f}"),
    "renyi_efficiency": ("Rényi", "{:.3f}"),
    "unknown_share": ("unknown", "{:.2%}"),
    "changed_share": ("changed", "{:.1%}"),
}


@app.command(
    rich_help_panel="Vocabulary",
    epilog=examples(
        "tokmill compare tokenizer/own@v1 tokenizer/own@v2 --text web='held-out/*.jsonl'",
        "tokmill compare own gpt2/vocab.json o200k_base.tiktoken:o200k bert/vocab.txt --text notes.txt",
        "tokmill compare own llama.model --parallel eng=eng.txt --parallel hin=hin.txt",
    ),
)
def compare(
    tokenizers: Annotated[
        list[str],
        typer.Argument(
            metavar="TOKENIZER…",
            help="tokenizer/name, or a file or folder; FILE:PATTERN for files that do not say how text is "
            "split.",
        ),
    ],
    text: Annotated[
        list[str] | None,
        typer.Option("--text", metavar="[NAME=]FILES", help="Text, a file or a pattern; repeatable."),
    ] = None,
    parallel: Annotated[
        list[str] | None,
        typer.Option(
            "--parallel", metavar="LANGUAGE=FILE", help="Parallel text, the reference first; repeatable."
        ),
    ] = None,
    megabytes: Annotated[
        float, typer.Option("--megabytes", min=0.001, help="How much of each text is read, in 10^6 bytes.")
    ] = 16,
    text_column: Annotated[
        str, typer.Option("--text-column", help="Column of the text in JSONL, Parquet, …")
    ] = "text",
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare tokenizers on the same text: the first is the one that the others are measured against."""
    from tokmill.tasks.audit.comparing import compare_parity, compare_texts, compare_vocabularies

    if not text and not parallel:
        raise UsageError("compare: give text with --text, or parallel text with --parallel")
    loaded = {name_of(reference): load_one(reference, store) for reference in tokenizers}
    if len(loaded) < len(tokenizers):
        raise UsageError("compare: two tokenizers have the same name; give each once")
    texts = dict(_texts(text or [], text_column, megabytes))
    lines = {language: _lines(language, path) for language, path in map(_named_file, parallel or [])}
    found = {
        "tokenizers": compare_vocabularies(loaded),
        "texts": compare_texts(loaded, texts) if texts else [],
        "parity": compare_parity(loaded, lines, next(iter(lines))) if lines else [],
    }
    if as_json:
        print_json(found)
    else:
        _draw(found)


def name_of(reference: str) -> str:
    """Return what a tokenizer is called in the tables."""
    path = Path(_place(reference)[0])
    return path.name if path.exists() else reference.removeprefix("tokenizer/")


def _place(reference: str) -> tuple[str, str | None]:
    """Return a path or reference, and a split pattern if it has one."""
    path, colon, pattern = reference.rpartition(":")
    has_pattern = colon and not Path(reference).exists() and Path(path).exists()
    return (path, pattern) if has_pattern else (reference, None)


def load_one(reference: str, store: str | None) -> "Tokenizer":
    """Load a tokenizer that was named on the command line."""
    from tokmill import tokenizer
    from tokmill.flows.cli.lookup import load_tokenizer

    place, pattern = _place(reference)
    return load_tokenizer(place, store) if pattern is None else tokenizer.load(place, split_pattern=pattern)


def _texts(given: Sequence[str], column: str, megabytes: float) -> "Iterator[tuple[str, Any]]":
    """Read the beginning of each text."""
    import numpy as np

    from tokmill.tasks.formats.text.resolving import resolve_files
    from tokmill.tasks.formats.text.sources import SourceSpec
    from tokmill.tasks.vocabulary.measuring import batches

    for one in given:
        name, _, files = one.rpartition("=")
        name = name or Path(files).name
        spec = SourceSpec(files=[files], text_column=column)
        found, _ = resolve_files(spec, Path.cwd(), _NoDigests(), source=name)
        data: list[Any] = []
        ends, left = [0], int(megabytes * 1e6)
        for file in found:
            for batch in batches(file.value, spec.read_options()):
                number = min(len(batch.offsets) - 1, int(np.searchsorted(batch.offsets, max(0, left))))
                data.append(batch.data[: batch.offsets[number]])
                ends += (batch.offsets[1 : number + 1] + (ends[-1])).tolist()
                left -= int(batch.offsets[number])
        yield name, (np.concatenate(data) if data else np.zeros(0, np.uint8), np.array(ends, np.int64))


class _NoDigests:
    """For files that are read once and identify nothing."""

    def digest(self, path: Path) -> str:
        """Return a digest that stands for any content."""
        return "0" * 64


def _named_file(given: str) -> tuple[str, Path]:
    language, equals, path = given.partition("=")
    if not equals or not Path(path).is_file():
        raise UsageError(f"--parallel {given}: write LANGUAGE=FILE, with a file that exists")
    return language, Path(path)


def _lines(language: str, path: Path) -> list[str]:
    try:
        return path.read_text("utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        problem = f"--parallel {language}: {path} is no UTF-8 at byte {error.start}; convert it"
        raise UsageError(problem) from error


def _draw(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    head = ("tokenizer", "family", "tokens", "shared with the first")
    rows = [
        (
            *(row["tokenizer"], row["family"], f"{row['vocab_size']:,}"),
            f"{row['num_shared']:,} ({row['shared_share']:.1%})",
        )
        for row in found["tokenizers"]
    ]
    draw(table(head, rows, right=head[2:]))
    for name in dict.fromkeys(row["text"] for row in found["texts"]):
        of_text = [row for row in found["texts"] if row["text"] == name]
        say(f"\n{name}: {of_text[0]['num_documents']:,} documents, {of_text[0]['num_bytes']:,} bytes")
        shown = [column for column in _COLUMNS if any(row[column] for row in of_text)]
        cells = [(row["tokenizer"], *(_cell(row, column) for column in shown)) for row in of_text]
        heads = [_COLUMNS[column][0] for column in shown]
        draw(table(("tokenizer", *heads), cells, right=heads))
    if found["parity"]:
        _draw_parity(found["parity"])


def _cell(row: Mapping[str, Any], column: str) -> str:
    value = row[column]
    return "–" if value is None else _COLUMNS[column][1].format(value)


def _draw_parity(rows: Sequence[Mapping[str, Any]]) -> None:
    names = list(dict.fromkeys(row["tokenizer"] for row in rows))
    say(f"\npremium over {rows[0]['reference']}, on {rows[0]['num_lines']:,} lines")
    premiums = {(row["tokenizer"], row["language"]): row for row in rows}
    languages = list(dict.fromkeys(row["language"] for row in rows))
    cells = [(language, *(_premium(premiums[name, language]) for name in names)) for language in languages]
    draw(table(("language", *names), cells, right=names))
    if any(row["unknown_share"] for row in rows):
        say("* some of the text is unknown to this tokenizer, and lost; what is lost costs too little")


def _premium(row: Mapping[str, Any]) -> str:
    if row["gini"] is not None:
        return f"Gini {row['gini']:.3f}"
    if row["premium"] is None:
        return "–"
    return f"{row['premium']:.2f}{'*' if row['unknown_share'] else ''}"
