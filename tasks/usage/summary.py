"""The summary of a vocabulary's use: `summary.json`, and the same as Markdown.

A ratio is None if its denominator is 0. All numbers are computed from the tables.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import Field

from tokmill.tasks.audit.entropy import RENYI_ORDER, renyi_efficiency
from tokmill.tasks.core.markdown import percent, table
from tokmill.tasks.core.stage import WithOptional
from tokmill.tasks.formats.encoded import EncodedStatistics
from tokmill.tasks.formats.files.manifests import Entry, read_model
from tokmill.tasks.usage.tables import SourceUse, Vocabulary, source_row
from tokmill.tokenizer.splitting.marks import marks_apart_in_use

SUMMARY_FILE = "summary.json"
_NUM_EXAMPLES = 40
SHOWN = 30
"""Suspects in `summary.md`."""
# Heading → the field of a yield, and how many digits it has after the point.
_COLUMNS = {
    "source": ("source", None),
    "documents": ("num_documents", 0),
    "tokens": ("num_tokens", 0),
    "text tokens": ("num_text_tokens", 0),
    "bytes": ("num_bytes", 0),
    "characters": ("num_chars", 0),
    "bytes per token": ("bytes_per_token", 3),
    "characters per token": ("chars_per_token", 3),
    "vocabulary used": ("used_share", -1),
    "Rényi efficiency": ("renyi_efficiency", 4),
}


class Yield(Entry):
    """How much text a token stands for, in one source or in all (then `source` is "all")."""

    source: str
    num_documents: int
    num_tokens: int
    num_text_tokens: int  # those of `num_tokens` that stand for text; all ratios are over these
    num_bytes: int
    num_chars: int
    bytes_per_token: float | None
    chars_per_token: float | None
    used_share: float | None  # fraction of the ordinary tokens (neither special nor reserved) that occur
    renyi_efficiency: float | None  # see the function; None if no ordinary token occurs


class Length(Entry):
    """Tokens of one length in bytes: how many there are, how many never occur, how often they occur."""

    num_bytes: int
    num_tokens: int
    num_unused: int
    num_occurrences: int


class Summary(Entry, WithOptional):
    """The content of `summary.json`."""

    optional = frozenset({"num_unknown_tokens", "marks_apart"})

    vocab_size: int
    num_ordinary_tokens: int  # those that are neither special nor reserved
    num_never_encoded_tokens: int  # ordinary tokens that never occur
    unused_examples: list[str]  # some of them, readable, merged ones before single bytes, then by id
    renyi_efficiency: float | None  # of all sources together; None if nothing was encoded
    overall: Yield
    sources: list[Yield]
    lengths: list[Length]
    num_unknown_tokens: int | None = None  # occurrences of the unknown token; None if there is none
    # The scripts whose marks (vowel signs) are never in one token with their letters, with the share of
    # tokens that begin with one.
    marks_apart: dict[str, float] = Field(default={})

    @property
    def unknown_share(self) -> float | None:
        """Unknown tokens over those of the text; None if the vocabulary has no unknown token."""
        if self.num_unknown_tokens is None:
            return None
        return round(self.num_unknown_tokens / max(1, self.overall.num_text_tokens), 6)

    @property
    def never_encoded_share(self) -> float:
        """Tokens that never occur over ordinary tokens; 0 if there are no ordinary tokens."""
        return round(self.num_never_encoded_tokens / max(1, self.num_ordinary_tokens), 6)


def read_summary(path: Path) -> Summary:
    """Read the summary of the usage artifact in the directory `path`."""
    return read_model(path / SUMMARY_FILE, Summary, "summary of use")


def summarize(
    tables: Mapping[str, pa.Table], vocabulary: Vocabulary, sources: Mapping[str, SourceUse]
) -> Summary:
    """Compute the summary from the tables that `usage_tables` made of this vocabulary and these sources."""
    ordinary = vocabulary.is_ordinary()
    efficiencies = [renyi_efficiency(use.token_counts[ordinary]) for use in sources.values()]
    total = sum((use.token_counts for use in sources.values()), np.zeros(len(ordinary), np.uint64))
    statistics = sum((use.statistics for use in sources.values()), EncodedStatistics())
    of_all = renyi_efficiency(total[ordinary])
    unknown = [token for token, kind in enumerate(vocabulary.kinds) if kind == "unknown"]
    used, unused = (np.flatnonzero(ordinary & found).tolist() for found in (total > 0, total == 0))
    examples = sorted(unused, key=lambda token: vocabulary.kinds[token] == "byte")[:_NUM_EXAMPLES]
    rows = zip(tables["usage_sources"].to_pylist(), efficiencies, strict=True)
    return Summary(
        vocab_size=len(ordinary),
        num_ordinary_tokens=len(used) + len(unused),
        num_never_encoded_tokens=len(unused),
        unused_examples=[vocabulary.texts[token] for token in examples],
        renyi_efficiency=of_all,
        overall=_yield(source_row("all", SourceUse(statistics, total), ordinary), of_all),
        sources=[_yield(*row) for row in rows],
        lengths=[Length(**row) for row in tables["usage_lengths"].to_pylist()],
        num_unknown_tokens=int(total[unknown].sum()) if unknown else None,
        marks_apart=marks_apart_in_use(vocabulary.tokens, np.where(ordinary, total, 0)),
    )


def to_markdown(summary: Summary, suspects: Sequence[Mapping[str, Any]] = ()) -> str:
    """`summary` as a Markdown document, with some rows of `vocab_suspects`."""
    never = f"{summary.num_never_encoded_tokens:,} of {summary.num_ordinary_tokens:,}"
    lines = [
        "# Use of the vocabulary",
        "",
        f"- Vocabulary: {summary.vocab_size:,} tokens, special and reserved ones included",
        "- Ordinary tokens that never occur in what was encoded: "
        f"{never} ({percent(summary.never_encoded_share)})",
    ]
    if summary.unknown_share is not None:
        share = percent(summary.unknown_share)
        lines.append(f"- Unknown tokens, whose text is lost: {summary.num_unknown_tokens:,} ({share})")
    if apart := [f"{script} ({share:.0%} of tokens)" for script, share in summary.marks_apart.items()]:
        lines.append(
            f"- Vowel signs and other marks are apart from their letters in {', '.join(apart)}: no token "
            "holds both, so words of these scripts take many tokens. What helps is a split pattern that "
            "keeps them together, such as o200k, and where it does, more text of these scripts, or more "
            "tokens"
        )
    lines += [
        f"- Rényi efficiency (order {RENYI_ORDER}): {_said(summary.renyi_efficiency, 4)}",
        "",
        "## Sources",
        "",
        *table(
            [*_COLUMNS],
            [
                [_said(getattr(part, name), digits) for name, digits in _COLUMNS.values()]
                for part in (*summary.sources, summary.overall)
            ],
        ),
        "",
        "Text tokens: without those that begin and end documents, and those of fill-in-the-middle. Ratios",
        "are over text tokens.",
        "Rényi efficiency: of the ordinary tokens' frequencies, over the logarithm of their number.",
        "",
        "## Token lengths",
        "",
        *table(
            ("bytes", "tokens", "never used", "occurrences"),
            [[f"{value:,}" for value in part.model_dump().values()] for part in summary.lengths],
        ),
    ]
    lines += _suspect_lines(suspects) if suspects else []
    if summary.unused_examples:
        more = summary.num_never_encoded_tokens - len(summary.unused_examples)
        tail = f", and {more:,} more in the table `usage_tokens`" if more else ""
        lines += ["", "## Tokens that never occur in what was encoded", ""]
        lines.append(f"{', '.join(map(_code, summary.unused_examples))}{tail}")
    return "\n".join([*lines, ""])


def _suspect_lines(suspects: Sequence[Mapping[str, Any]]) -> list[str]:
    text = """
## Suspects

Tokens that a model would hardly see, though they are in the vocabulary; all are in the table
`vocab_suspects`. Expected: as often as in the text that the tokenizer was trained on, or, where that
is not known, as its rank says.
"""
    rows_of = [
        [
            _code(row["text"]),
            row["reason"].replace("_", " "),
            f"{row['expected']:,.0f}",
            f"{row['num_occurrences']:,}",
            row["source"] or "–",
            _code(row.get("context") or row["example"]),
        ]
        for row in suspects
    ]
    head = ("token", "why", "expected", "occurrences", "from", "as in")
    return [*text.split("\n"), *table(head, rows_of, left=(0, 1, 4, 5))]


def _code(text: str | None) -> str:
    return f"`{text.replace('`', chr(0x2BC))}`" if text else "–"


def _said(value: str | float | None, digits: int | None) -> str:
    """A name, a count, a ratio with some digits, or the share of the vocabulary that is used, if -1."""
    if value is None or digits is None or isinstance(value, str):
        return "–" if value is None else str(value)
    return percent(value, 1) if digits < 0 else f"{value:,.{digits}f}"


def _yield(row: dict[str, Any], efficiency: float | None) -> Yield:
    """Return a row of `usage_sources`, with its ratios rounded to six digits and its Rényi efficiency."""
    known = {name: row[name] for name in Yield.model_fields if name in row}
    ratios = {name: round(v, 6) if isinstance(v, float) else v for name, v in known.items()}
    return Yield(**ratios, renyi_efficiency=efficiency)
