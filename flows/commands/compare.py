"""`tokmill compare`: runs or two artifacts, with the causes of differences; or tokenizers on a text."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text
from typer import Argument, Option

from tokmill.flows.cli.app import Answer, app, command
from tokmill.flows.cli.options import (
    StoreOption,
    existing_store,
    find_artifact,
    find_run,
    load_tokenizers,
    once_each,
)
from tokmill.flows.cli.output import Part, Table, require_new, results
from tokmill.flows.errors import UsageError
from tokmill.flows.figures import counted
from tokmill.tasks.core.markdown import number, percent

if TYPE_CHECKING:
    from tokmill.tasks.audit.comparison import Texts
    from tokmill.tasks.comparing.causes import Cause
    from tokmill.tasks.comparing.runs import Comparison, Explanation, SideBySide
    from tokmill.tasks.store import Store
    from tokmill.tokenizer import Tokenizer

_MOST_MEGABYTES = 1 << 20
_WIDE, _ROOMY = 100, 2  # columns from which on words are whole, if no more runs are compared
_MOST_OF_A_WORD = 12
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


@command(
    app,
    "tokmill compare latest 5f0c2a",
    "tokmill compare tokenizer/own@v1 tokenizer/own@v2 --html comparison.html",
    "tokmill compare --artifacts packed/quickstart@v1 packed/quickstart@v2",
    "tokmill compare tokenizer/own@v1 tokenizer/own@v2 --text web='held-out/*.jsonl'",
    "tokmill compare own gpt2/vocab.json o200k_base.tiktoken:o200k bert/vocab.txt --text notes.txt",
    "tokmill compare own llama.model --parallel eng=eng.txt --parallel hin=hin.txt",
)
def compare(
    references: list[str] = Argument(
        ...,
        metavar="RUN…",
        help="Runs: `latest`, ids, names, artifacts for the runs that made them. With --artifacts two "
        "artifacts. With --text or --parallel tokenizers: tokenizer/name, a file or a folder; FILE:PATTERN "
        "for files that do not say how text is split.",
    ),
    artifacts: bool = Option(False, "--artifacts", help="Say why two artifacts differ: the first causes."),
    fields: bool = Option(False, "--fields", help="With --artifacts: every field that differs."),
    text: list[str] | None = Option(None, metavar="[NAME=]FILES", help="A file or a pattern; repeatable."),
    parallel: list[str] | None = Option(None, metavar="LANGUAGE=FILE", help="Reference first; repeatable."),
    megabytes: float = Option(16, min=0.001, help="How much of each text is read, in 10^6 bytes."),
    text_column: str = Option("text", help="Column of the text in JSONL, Parquet, …"),
    html: Path | None = Option(None, metavar="FILE", help="Write it as a page, a new file."),
    every: bool = Option(False, "--all", "-a", help="Also metrics that do not differ."),
    store: StoreOption = None,
) -> Answer | str:
    """Compare runs, two artifacts, or tokenizers on the same text.

    The others are measured against the first. Of runs and artifacts, the causes of differences are shown.
    """
    if text or parallel:
        if html is not None or artifacts:
            raise UsageError(
                "compare: --html and --artifacts exclude --text and --parallel; `tokmill report` has a page"
            )
        named = once_each("--text", map(_named_text, text or []))
        texts = {name: _text(name, files, text_column, megabytes) for name, files in named.items()}
        return _tokenizers(load_tokenizers(references, store), texts, parallel or [])
    if len(references) < 2 and not artifacts:
        raise UsageError(
            "compare: name at least two runs; to compare tokenizers give text with --text, or parallel text "
            "with --parallel"
        )
    require_new("compare", html)
    opened = existing_store(store)
    if artifacts:
        return _artifacts(opened, references, html, fields=fields)
    from tokmill.tasks.comparing.page import write_page
    from tokmill.tasks.comparing.runs import Comparison

    runs = {run.run_id: run for run in (find_run(opened, reference) for reference in references)}
    if len(runs) < len(references):
        raise UsageError(f"compare: one of {', '.join(references)} is named twice; name different runs")
    comparison = Comparison(opened, list(runs.values()))
    if html is not None:
        write_page(comparison, html)
        return f"{html} shows {len(references)} runs"
    return Answer(comparison.to_json, _of_runs(comparison, every_metric=every))


def _artifacts(store: "Store", references: Sequence[str], html: Path | None, *, fields: bool) -> Answer | str:
    from tokmill.tasks.comparing.page import write_page_of_two
    from tokmill.tasks.comparing.runs import explain

    if len(references) != 2:
        raise UsageError(f"compare: --artifacts compares two, but {len(references)} are named")
    one, other = (find_artifact(store, reference, removed=True) for reference in references)
    if one.kind != other.kind:
        a, b = references
        raise UsageError(f"compare: {a} is a {one.kind} and {b} a {other.kind}; name two of one kind")
    explanation = explain(store, one, other)
    if html is not None:
        write_page_of_two(explanation, html)
        return f"{html} shows {explanation.a.reference} and {explanation.b.reference}"
    return Answer(explanation.to_json, _of_artifacts(explanation, fields=fields))


def _of_runs(comparison: "Comparison", *, every_metric: bool) -> Iterator[Part]:
    heads, (parameters, inputs, artifacts, metrics) = comparison.heads, comparison.tables
    lines = [
        (head, run.name or run.profile, run.state, run.started[:16].replace("T", " "), run.experiment)
        for head, run in zip(heads, comparison.runs, strict=True)
    ]
    yield Table(("run", "name", "state", "began (UTC)", "experiment"), lines)
    yield from _side_by_side(parameters, heads)
    yield from _side_by_side(inputs, heads)
    for place in range(1, len(comparison.runs)):
        yield f"\nwhy {heads[place]} differs from {heads[0]}"
        reasons = comparison.reasons(place)
        for cause in reasons.causes:
            yield from _cause(cause)
        first, *rest = reasons.words
        yield from (f"  {line}" for line in (first, *reasons.endings, *rest))
    yield from _side_by_side(artifacts, heads)
    shown = [line for line in metrics.lines if every_metric or (line.differs and line.is_shared)]
    yield from _side_by_side(metrics._replace(lines=shown), heads)
    alone = sum(not line.is_shared for line in metrics.lines)
    if alone and not every_metric:
        yield f"and {counted(alone, 'metric')} that only one of the runs has (--all shows them)"


def _of_artifacts(explanation: "Explanation", *, fields: bool) -> Iterator[Part]:
    a, b = explanation.a, explanation.b
    if explanation.same_content:
        yield f"{a.reference} and {b.reference} have the same content {a.content_digest[:12]}"
        yield from (f"  {cause.text}: without effect on the content" for cause in explanation.without_effect)
    else:
        yield f"{b.reference} differs from {a.reference} because of"
    for cause in explanation.causes:
        yield from _cause(cause)
        if cause.through:
            yield f"    through {' → '.join([cause.artifact, *cause.through])}"
    yield from _side_by_side(explanation.tables[-1], ["a", "b"])
    if fields:
        yield "\nfields of the recipes"
        yield from (f"{each.field}\n  a  {each.a}\n  b  {each.b}" for each in explanation.fields)


def _cause(cause: "Cause") -> list[str]:
    return [f"  {cause.text} ({cause.artifact})", *(f"    {line}" for line in cause.details)]


def _side_by_side(sheet: "SideBySide", heads: Sequence[str]) -> Iterator[Part]:
    """Yield a table of all runs; as tables of a few, each beside the first, if they have no room together."""
    if not sheet.lines:
        return
    yield Text(f"\n{sheet.title}", style="bold")
    begin, end, room = 1, 2, results().width
    while begin < len(heads):
        while end < len(heads) and _beside(sheet, heads, [0, *range(begin, end + 1)]).width <= room:
            end += 1
        yield _beside(sheet, heads, [0, *range(begin, end)])
        begin, end = end, end + 1
        if begin < len(heads):
            yield ""


def _beside(sheet: "SideBySide", heads: Sequence[str], places: Sequence[int]) -> Table:
    from tokmill.tasks.comparing.causes import value_text
    from tokmill.tasks.comparing.runs import change_text

    of_artifacts, changes = sheet.title == "artifacts", sheet.changes
    is_narrow = len(heads) > _ROOMY or results().width < _WIDE

    def cell(value: Any) -> str:
        if not changes:
            return (value or "–") if of_artifacts else value_text(value)
        cut = is_narrow and isinstance(value, str) and len(value) > _MOST_OF_A_WORD
        return f"{value[: _MOST_OF_A_WORD - 1]}…" if cut else number(value)

    columns, rows = ["stage" if of_artifacts else "", heads[0]], []
    columns += [part for place in places[1:] for part in (heads[place], *["change"] * changes)]
    for line in sheet.lines:
        first, *others = (line.values[place] for place in places)
        row = [line.name, cell(first)]
        for value in others:
            row += [cell(value), *([change_text(first, value)] if changes else [])]
        rows.append(row)
    return Table(columns, rows, right=columns[1:] if changes else ())


def _tokenizers(loaded: "Mapping[str, Tokenizer]", texts: "Texts", parallel: Sequence[str]) -> Answer:
    from tokmill.tasks.audit.comparison import compare_parity, compare_texts, compare_vocabularies
    from tokmill.tasks.audit.parity import read_parallel
    from tokmill.tasks.core.errors import AuditError

    files = list[tuple[str, Path]]()
    for option in parallel:
        language, equals, path = option.partition("=")
        if not equals or not Path(path).is_file():
            raise UsageError(f"--parallel {option}: write LANGUAGE=FILE, with a file that exists")
        files.append((language, Path(path)))
    try:
        lines = read_parallel(once_each("--parallel", files))
    except AuditError as error:
        raise UsageError(f"compare: {error}") from error
    compared = {
        "tokenizers": compare_vocabularies(loaded),
        "texts": compare_texts(loaded, texts) if texts else [],
        "parity": compare_parity(loaded, lines, next(iter(lines))) if lines else [],
    }
    return Answer(compared, _of_tokenizers(compared))


def _named_text(option: str) -> tuple[str, str]:
    """Return the name of a text and its files, which may have `=` in their names."""
    name, _, files = option.partition("=")
    if Path(option).exists() or not (name and files):
        option = option if Path(option).exists() else option.removeprefix("=")
        return Path(option).name, option
    return name, files


def _text(name: str, files: str, column: str, megabytes: float) -> "tuple[Any, Any]":
    """Read the beginning of a text."""
    import numpy as np

    from tokmill.flows.profile.drafting import files_of
    from tokmill.tasks.formats.text.sources import SourceSpec
    from tokmill.tasks.vocabulary.report import batches

    spec = SourceSpec(files=[files], text_column=column)
    data: list[Any] = [np.zeros(0, np.uint8)]
    ends, remaining = [0], min(megabytes, _MOST_MEGABYTES) * 1e6
    for file in files_of(spec, name):
        for batch in batches(file, spec.read_options()):
            last = min(len(batch.offsets) - 1, int(np.searchsorted(batch.offsets, max(0, remaining))))
            data.append(batch.data[: batch.offsets[last]])
            ends += (batch.offsets[1 : last + 1] + (ends[-1])).tolist()
            remaining -= int(batch.offsets[last])
    return np.concatenate(data), np.array(ends, np.int64)


def _of_tokenizers(compared: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[Part]:
    head = ("tokenizer", "family", "tokens", "shared with the first")
    rows = []
    for row in compared["tokenizers"]:
        share = row["shared_share"]
        shared = "–" if share is None else f"{row['num_shared']:,} ({percent(share, 1)})"
        rows.append((row["tokenizer"], row["family"], row["vocab_size"], shared))
    yield Table(head, rows, right=head[2:])
    for name in dict.fromkeys(row["text"] for row in compared["texts"]):
        yield from _of_text([row for row in compared["texts"] if row["text"] == name])
    if compared["parity"]:
        yield from _of_parity(compared["parity"])


def _of_text(rows: list[Mapping[str, Any]]) -> Iterator[Part]:
    first = rows[0]
    yield f"\n{first['text']}: {counted(first['num_documents'], 'document')}, {first['num_bytes']:,} bytes"
    if not first["num_bytes"]:
        yield "nothing to measure: it holds no text"
        return
    rows.sort(key=lambda row: bool(row["lossy"]))  # those that lose text are apart, in the same order
    columns = [column for column in _COLUMNS if any(row[column] for row in rows)]
    cells = [
        (
            f"{row['tokenizer']}{' (lossy)' if row['lossy'] else ''}",
            *(_cell(row[name], name) for name in columns),
        )
        for row in rows
    ]
    heads = [_COLUMNS[column] for column in columns]
    yield Table(("tokenizer", *heads), cells, right=heads)
    if rows[-1]["lossy"]:
        yield "lossy: a part of the text is unknown, or comes back changed; what is lost costs no tokens"


def _cell(value: float | None, column: str) -> str:
    if value is None:
        return "–"
    digits = 2 if column == "unknown_share" else 1
    return percent(value, digits) if column.endswith("_share") else f"{value:.3f}"


def _of_parity(rows: Sequence[Mapping[str, Any]]) -> Iterator[Part]:
    names = list(dict.fromkeys(row["tokenizer"] for row in rows))
    lossy = {row["tokenizer"] for row in rows if row["unknown_share"]}
    by_language: dict[str, list[str]] = {}
    for row in rows:
        mark = "*" if row["unknown_share"] or (row["gini"] is not None and row["tokenizer"] in lossy) else ""
        premium = "–" if row["premium"] is None else f"{row['premium']:.2f}{mark}"
        shown = premium if row["gini"] is None else f"Gini {row['gini']:.3f}{mark}"
        by_language.setdefault(row["language"], []).append(shown)
    yield f"\npremium over {rows[0]['reference']}, on {counted(rows[0]['num_lines'], 'line')}"
    yield Table(("language", *names), [(name, *cells) for name, cells in by_language.items()], right=names)
    if lossy:
        yield "* some of the text is unknown to this tokenizer, and lost; what is lost costs too little"
    if len(by_language) == 2:  # with the row over all
        yield "there is one language alone, so there is nothing to compare it with"
    if any(row["premium"] is None and row["language"] != "all" for row in rows):
        yield f"–: {rows[0]['reference']} has no tokens, so there is nothing to measure premiums against"
