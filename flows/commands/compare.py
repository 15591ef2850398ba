"""`tokmill compare`: runs side by side, with the causes of what differs; or tokenizers on the same text."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from tokmill.flows.cli.app import app, examples
from tokmill.flows.cli.options import JsonOption, StoreOption
from tokmill.flows.cli.output import draw, print_json, require_new, say, table
from tokmill.flows.errors import UsageError
from tokmill.flows.figures import counted
from tokmill.tasks.core.markdown import percent

if TYPE_CHECKING:
    from tokmill.tokenizer import Tokenizer

_T = TypeVar("_T")
_RESERVED = ("all", "*")
_MOST_MEGABYTES = 1 << 20
_COLUMNS = {
    "bytes_per_token": "bytes per token",
    "fertility": "tokens per word",
    "whole_share": "whole words",
    "relative_length": "length",
    "bits_per_byte": "bits per byte",
    "renyi_efficiency": "Rényi",
    "unknown_share": "unknown",
    "changed_share": "changed",
}


@app.command(
    rich_help_panel="Store",
    epilog=examples(
        "tokmill compare latest 5f0c2a",
        "tokmill compare tokenizer/own@v1 tokenizer/own@v2 --html comparison.html",
        "tokmill compare tokenizer/own@v1 tokenizer/own@v2 --text web='held-out/*.jsonl'",
        "tokmill compare own gpt2/vocab.json o200k_base.tiktoken:o200k bert/vocab.txt --text notes.txt",
        "tokmill compare own llama.model --parallel eng=eng.txt --parallel hin=hin.txt",
    ),
)
def compare(
    tokenizers: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN…",
            help="Runs: `latest`, ids, names, artifacts for the runs that made them. With --text or "
            "--parallel tokenizers: tokenizer/name, or a file or folder; FILE:PATTERN for files that do not "
            "say how text is split.",
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
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write the comparison of runs as a page, a new file."),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", "-a", help="Also the metrics in which the runs do not differ.")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare runs, and say why they differ; or, with --text or --parallel, tokenizers on the same text.

    The first is the one that the others are measured against.
    """
    if not text and not parallel:
        compare_runs(tokenizers, store, html, every_metric=every, as_json=as_json)
        return
    if html is not None:
        raise UsageError("compare: --html is for runs; tokenizers side by side are in `tokmill report`")
    from tokmill.tasks.audit.comparison import compare_parity, compare_texts, compare_vocabularies

    loaded = {name: load_one(one, store) for name, one in names_of(tokenizers).items()}
    named = _once_each("--text", map(_named_text, text or []))
    texts = {name: _text(name, files, text_column, megabytes) for name, files in named.items()}
    languages = _once_each("--parallel", map(_named_file, parallel or []))
    lines = _parallel(languages)
    found = {
        "tokenizers": compare_vocabularies(loaded),
        "texts": compare_texts(loaded, texts) if texts else [],
        "parity": compare_parity(loaded, lines, next(iter(lines))) if lines else [],
    }
    if as_json:
        print_json(found)
    else:
        _draw(found)


def compare_runs(
    references: Sequence[str], store: str | None, html: Path | None, *, every_metric: bool, as_json: bool
) -> None:
    """Compare runs, and print or write what differs and why.

    Raises:
        UsageError: there are fewer than two, there is no such run, or the file exists.
    """
    from tokmill.flows.cli.comparison import print_comparison
    from tokmill.flows.cli.lookup import distinct, existing_store, find_run
    from tokmill.tasks.comparing.runs import Comparison

    if len(references) < 2:
        raise UsageError(
            "compare: name at least two runs; to compare tokenizers give text with --text, or parallel text "
            "with --parallel"
        )
    opened = existing_store(store)
    comparison = Comparison(opened, distinct([find_run(opened, reference) for reference in references]))
    if html is not None:
        from tokmill.tasks.comparing.page.writing import write_page

        require_new("compare", html)
        write_page(comparison, html)
        say(f"{html} shows {len(references)} runs")
    elif as_json:
        print_json(comparison.to_json())
    else:
        print_comparison(comparison, every_metric=every_metric)


def names_of(references: Sequence[str]) -> dict[str, str]:
    """Return tokenizers by what they are called in the tables; files of one name by their paths.

    Raises:
        UsageError: one is named twice.
    """
    short = [_short_name(reference) for reference in references]
    names = [one if short.count(one) == 1 else ref for one, ref in zip(short, references, strict=True)]
    return _once_each("tokenizers", zip(names, references, strict=True))


def _short_name(reference: str) -> str:
    path = Path(_place(reference)[0])
    return path.name if path.exists() else reference.removeprefix("tokenizer/")


def _once_each(what: str, given: Iterable[tuple[str, _T]]) -> dict[str, _T]:
    """Return what is given by name.

    Raises:
        UsageError: a name stands for two things, or for all of them.
    """
    found: dict[str, _T] = {}
    for name, value in given:
        if name in found:
            raise UsageError(f"compare: {what}: {name!r} is named twice; name each once")
        if name in _RESERVED:
            raise UsageError(f"compare: {what}: {name!r} is what all together are called; use another name")
        found[name] = value
    return found


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


def _named_text(given: str) -> tuple[str, str]:
    """Return the name of a text and its files, which may have `=` in their names."""
    if Path(given).exists():
        return Path(given).name, given
    name, _, files = given.partition("=")
    return (name, files) if name and files else (Path(given.removeprefix("=")).name, given.removeprefix("="))


def _text(name: str, files: str, column: str, megabytes: float) -> "tuple[Any, Any]":
    """Read the beginning of a text."""
    import numpy as np

    from tokmill.tasks.formats.text.source_files import resolve_files
    from tokmill.tasks.formats.text.sources import SourceSpec
    from tokmill.tasks.vocabulary.report import batches

    spec = SourceSpec(files=[files], text_column=column)
    found, _ = resolve_files(spec, Path.cwd(), _NoDigests(), source=name)
    data: list[Any] = []
    ends, left = [0], min(megabytes, _MOST_MEGABYTES) * 1e6
    for file in found:
        for batch in batches(file.value, spec.read_options()):
            number = min(len(batch.offsets) - 1, int(np.searchsorted(batch.offsets, max(0, left))))
            data.append(batch.data[: batch.offsets[number]])
            ends += (batch.offsets[1 : number + 1] + (ends[-1])).tolist()
            left -= int(batch.offsets[number])
    return (np.concatenate(data) if data else np.zeros(0, np.uint8), np.array(ends, np.int64))


class _NoDigests:
    """For files that are read once and identify nothing."""

    def digest(self, file: object) -> str:
        """Return a digest that stands for any content."""
        return "0" * 64


def _named_file(given: str) -> tuple[str, Path]:
    language, equals, path = given.partition("=")
    if not equals or not Path(path).is_file():
        raise UsageError(f"--parallel {given}: write LANGUAGE=FILE, with a file that exists")
    return language, Path(path)


def _parallel(files: Mapping[str, Path]) -> dict[str, list[str]]:
    from tokmill.tasks.audit.parity import read_parallel
    from tokmill.tasks.core.errors import AuditError

    try:
        return read_parallel(files)
    except AuditError as error:
        raise UsageError(f"compare: {error}") from error


def _draw(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    head = ("tokenizer", "family", "tokens", "shared with the first")
    rows = [
        (row["tokenizer"], row["family"], f"{row['vocab_size']:,}", _shared(row))
        for row in found["tokenizers"]
    ]
    draw(table(head, rows, right=head[2:]))
    for name in dict.fromkeys(row["text"] for row in found["texts"]):
        of_text = [row for row in found["texts"] if row["text"] == name]
        say(
            f"\n{name}: {counted(of_text[0]['num_documents'], 'document')}, {of_text[0]['num_bytes']:,} bytes"
        )
        if not of_text[0]["num_bytes"]:
            say("nothing to measure: it holds no text")
            continue
        of_text.sort(key=lambda row: bool(row["lossy"]))  # those that lose text are apart, in the same order
        shown = [column for column in _COLUMNS if any(row[column] for row in of_text)]
        cells = [(_marked(row), *(_cell(row, column) for column in shown)) for row in of_text]
        heads = [_COLUMNS[column] for column in shown]
        draw(table(("tokenizer", *heads), cells, right=heads))
        if of_text[-1]["lossy"]:
            say("lossy: a part of the text is unknown, or comes back changed; what is lost costs no tokens")
    if found["parity"]:
        _draw_parity(found["parity"])


def _marked(row: Mapping[str, Any]) -> str:
    return f"{row['tokenizer']} (lossy)" if row["lossy"] else str(row["tokenizer"])


def _shared(row: Mapping[str, Any]) -> str:
    share = row["shared_share"]
    return "–" if share is None else f"{row['num_shared']:,} ({percent(share, 1)})"


def _cell(row: Mapping[str, Any], column: str) -> str:
    value = row[column]
    if value is None:
        return "–"
    digits = 2 if column == "unknown_share" else 1
    return percent(value, digits) if column.endswith("_share") else f"{value:.3f}"


def _draw_parity(rows: Sequence[Mapping[str, Any]]) -> None:
    names = list(dict.fromkeys(row["tokenizer"] for row in rows))
    say(f"\npremium over {rows[0]['reference']}, on {counted(rows[0]['num_lines'], 'line')}")
    premiums = {(row["tokenizer"], row["language"]): row for row in rows}
    lossy = {row["tokenizer"] for row in rows if row["unknown_share"]}
    languages = list(dict.fromkeys(row["language"] for row in rows))
    cells = [
        (language, *(_premium(premiums[name, language], name in lossy) for name in names))
        for language in languages
    ]
    draw(table(("language", *names), cells, right=names))
    if any(row["unknown_share"] for row in rows):
        say("* some of the text is unknown to this tokenizer, and lost; what is lost costs too little")
    if len(languages) == 2:  # with the row over all
        say("there is one language alone, so there is nothing to compare it with")
    if any(row["premium"] is None and row["language"] != "all" for row in rows):
        say(f"–: {rows[0]['reference']} has no tokens, so there is nothing to measure premiums against")


def _premium(row: Mapping[str, Any], lossy: bool) -> str:
    if row["gini"] is not None:
        return f"Gini {row['gini']:.3f}{'*' if lossy else ''}"
    if row["premium"] is None:
        return "–"
    return f"{row['premium']:.2f}{'*' if row['unknown_share'] else ''}"
