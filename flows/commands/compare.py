"""`tokmill compare`: runs or two artifacts, with the causes of differences; or tokenizers on a text."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Argument, Option

from tokmill.flows.cli.app import Answer, app, command
from tokmill.flows.cli.lookup import existing_store, find_artifact, find_run, load_tokenizers, once_each
from tokmill.flows.cli.options import StoreOption
from tokmill.flows.cli.output import Part, require_new, table
from tokmill.flows.errors import UsageError
from tokmill.flows.figures import counted
from tokmill.tasks.core.markdown import percent

if TYPE_CHECKING:
    from tokmill.tasks.audit.comparison import Texts
    from tokmill.tasks.store import Store
    from tokmill.tokenizer import Tokenizer

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
    parallel: list[str] | None = Option(
        None, metavar="LANGUAGE=FILE", help="The reference first; repeatable."
    ),
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
    return _runs(opened, references, html, every=every)


def _runs(store: "Store", references: Sequence[str], html: Path | None, *, every: bool) -> Answer | str:
    from tokmill.flows.cli.comparison import comparison_parts
    from tokmill.tasks.comparing.page import write_page
    from tokmill.tasks.comparing.runs import Comparison

    runs = {run.run_id: run for run in (find_run(store, reference) for reference in references)}
    if len(runs) < len(references):
        raise UsageError(f"compare: one of {', '.join(references)} is named twice; name different runs")
    comparison = Comparison(store, list(runs.values()))
    if html is not None:
        write_page(comparison, html)
        return f"{html} shows {len(references)} runs"
    return Answer(comparison.to_json, comparison_parts(comparison, every_metric=every))


def _artifacts(store: "Store", references: Sequence[str], html: Path | None, *, fields: bool) -> Answer | str:
    from tokmill.flows.cli.comparison import explanation_parts
    from tokmill.tasks.comparing.artifacts import explain
    from tokmill.tasks.comparing.page import write_page_of_two

    if len(references) != 2:
        raise UsageError(f"compare: --artifacts compares two, but {len(references)} are named")
    one, other = (find_artifact(store, reference, removed=True) for reference in references)
    if one.kind != other.kind:
        a, b = references
        raise UsageError(f"compare: {a} is a {one.kind} and {b} a {other.kind}; name two of one kind")
    found = explain(store, one, other)
    if html is not None:
        write_page_of_two(found, html)
        return f"{html} shows {found.a.reference} and {found.b.reference}"
    return Answer(found.to_json, explanation_parts(found, fields=fields))


def _tokenizers(loaded: "Mapping[str, Tokenizer]", texts: "Texts", parallel: Sequence[str]) -> Answer:
    from tokmill.tasks.audit.comparison import compare_parity, compare_texts, compare_vocabularies
    from tokmill.tasks.audit.parity import read_parallel
    from tokmill.tasks.core.errors import AuditError

    try:
        lines = read_parallel(once_each("--parallel", map(_named_file, parallel)))
    except AuditError as error:
        raise UsageError(f"compare: {error}") from error
    found = {
        "tokenizers": compare_vocabularies(loaded),
        "texts": compare_texts(loaded, texts) if texts else [],
        "parity": compare_parity(loaded, lines, next(iter(lines))) if lines else [],
    }
    return Answer(found, _shown(found))


def _named_text(option: str) -> tuple[str, str]:
    """Return the name of a text and its files, which may have `=` in their names."""
    if Path(option).exists():
        return Path(option).name, option
    name, _, files = option.partition("=")
    return (
        (name, files) if name and files else (Path(option.removeprefix("=")).name, option.removeprefix("="))
    )


def _text(name: str, files: str, column: str, megabytes: float) -> "tuple[Any, Any]":
    """Read the beginning of a text."""
    import numpy as np

    from tokmill.tasks.formats.text.source_files import resolve_files
    from tokmill.tasks.formats.text.sources import SourceSpec
    from tokmill.tasks.vocabulary.report import batches

    spec = SourceSpec(files=[files], text_column=column)
    found, _ = resolve_files(spec, Path.cwd(), _NoDigests(), source=name)
    data: list[Any] = []
    ends, remaining = [0], min(megabytes, _MOST_MEGABYTES) * 1e6
    for file in found:
        for batch in batches(file.value, spec.read_options()):
            number = min(len(batch.offsets) - 1, int(np.searchsorted(batch.offsets, max(0, remaining))))
            data.append(batch.data[: batch.offsets[number]])
            ends += (batch.offsets[1 : number + 1] + (ends[-1])).tolist()
            remaining -= int(batch.offsets[number])
    return (np.concatenate(data) if data else np.zeros(0, np.uint8), np.array(ends, np.int64))


class _NoDigests:
    """For files that are read once and identify nothing."""

    def digest(self, file: object) -> str:
        """Return a digest that stands for any content."""
        return "0" * 64


def _named_file(option: str) -> tuple[str, Path]:
    language, equals, path = option.partition("=")
    if not equals or not Path(path).is_file():
        raise UsageError(f"--parallel {option}: write LANGUAGE=FILE, with a file that exists")
    return language, Path(path)


def _shown(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[Part]:
    head = ("tokenizer", "family", "tokens", "shared with the first")
    rows = []
    for row in found["tokenizers"]:
        share = row["shared_share"]
        shared = "–" if share is None else f"{row['num_shared']:,} ({percent(share, 1)})"
        rows.append((row["tokenizer"], row["family"], f"{row['vocab_size']:,}", shared))
    yield table(head, rows, right=head[2:])
    for name in dict.fromkeys(row["text"] for row in found["texts"]):
        yield from _of_text([row for row in found["texts"] if row["text"] == name])
    if found["parity"]:
        yield from _parity(found["parity"])


def _of_text(rows: list[Mapping[str, Any]]) -> Iterator[Part]:
    first = rows[0]
    yield f"\n{first['text']}: {counted(first['num_documents'], 'document')}, {first['num_bytes']:,} bytes"
    if not first["num_bytes"]:
        yield "nothing to measure: it holds no text"
        return
    rows.sort(key=lambda row: bool(row["lossy"]))  # those that lose text are apart, in the same order
    columns = [column for column in _COLUMNS if any(row[column] for row in rows)]
    cells = [
        (f"{row['tokenizer']}{' (lossy)' if row['lossy'] else ''}", *(_cell(row, name) for name in columns))
        for row in rows
    ]
    heads = [_COLUMNS[column] for column in columns]
    yield table(("tokenizer", *heads), cells, right=heads)
    if rows[-1]["lossy"]:
        yield "lossy: a part of the text is unknown, or comes back changed; what is lost costs no tokens"


def _cell(row: Mapping[str, Any], column: str) -> str:
    value = row[column]
    if value is None:
        return "–"
    digits = 2 if column == "unknown_share" else 1
    return percent(value, digits) if column.endswith("_share") else f"{value:.3f}"


def _parity(rows: Sequence[Mapping[str, Any]]) -> Iterator[Part]:
    names = list(dict.fromkeys(row["tokenizer"] for row in rows))
    premiums = {(row["tokenizer"], row["language"]): row for row in rows}
    lossy = {row["tokenizer"] for row in rows if row["unknown_share"]}
    languages = list(dict.fromkeys(row["language"] for row in rows))
    cells = [
        (language, *(_premium(premiums[name, language], name in lossy) for name in names))
        for language in languages
    ]
    yield f"\npremium over {rows[0]['reference']}, on {counted(rows[0]['num_lines'], 'line')}"
    yield table(("language", *names), cells, right=names)
    if lossy:
        yield "* some of the text is unknown to this tokenizer, and lost; what is lost costs too little"
    if len(languages) == 2:  # with the row over all
        yield "there is one language alone, so there is nothing to compare it with"
    if any(row["premium"] is None and row["language"] != "all" for row in rows):
        yield f"–: {rows[0]['reference']} has no tokens, so there is nothing to measure premiums against"


def _premium(row: Mapping[str, Any], lossy: bool) -> str:
    if row["gini"] is not None:
        return f"Gini {row['gini']:.3f}{'*' if lossy else ''}"
    if row["premium"] is None:
        return "–"
    return f"{row['premium']:.2f}{'*' if row['unknown_share'] else ''}"
