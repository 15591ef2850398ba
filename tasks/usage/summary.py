"""The summary of a vocabulary's use: `summary.json`, and the same as Markdown.

A ratio is None if its denominator is 0. All numbers are computed from the tables.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tokmill.tasks.audit.entropy import RENYI_ORDER, renyi_efficiency
from tokmill.tasks.core.markdown import percent, table
from tokmill.tasks.core.stage import WithOptional
from tokmill.tasks.formats.files.manifests import Entry, read_model
from tokmill.tasks.usage.tables import SourceUse, Vocabulary, rows
from tokmill.tokenizer.splitting.marks import marks_apart

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

SUMMARY_FILE = "summary.json"
_NUM_EXAMPLES = 40
SHOWN = 30
"""Suspects in `summary.md`."""
_UNUSED = """
    SELECT readable FROM usage_tokens SEMI JOIN ordinary USING (token_id)
    WHERE num_occurrences = 0 ORDER BY kind = 'byte', token_id LIMIT ?
"""
_OVERALL = r"""
    SELECT 'all' AS source, num_documents, num_tokens, num_text_tokens, num_bytes, num_chars,
        num_bytes / nullif(num_text_tokens, 0) AS bytes_per_token,
        num_chars / nullif(num_text_tokens, 0) AS chars_per_token,
        (SELECT avg((num_occurrences > 0)::INT) FROM usage_tokens SEMI JOIN ordinary USING (token_id))
            AS used_share
    FROM (SELECT coalesce(sum(COLUMNS('(num_.*)')), 0)::BIGINT AS '\1' FROM usage_sources)
"""
_YIELD_HEAD = (
    *("source", "documents", "tokens", "text tokens", "bytes", "characters"),
    *("bytes per token", "characters per token", "vocabulary used", "Rényi efficiency"),
)


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
    """The content of `summary.json`.

    Attributes:
        num_ordinary_tokens: tokens of the vocabulary that are neither special nor reserved.
        num_never_encoded_tokens: ordinary tokens that never occur.
        unused_examples: the readable form of some of them, merged ones before single bytes, then by id.
        renyi_efficiency: of all sources together; None if nothing was encoded.
        num_unknown_tokens: how often the unknown token occurs; None if the vocabulary has none.
        marks_apart: the scripts whose marks (vowel signs) are never in one token with their letters, with the
            share of tokens that begin with one.
    """

    optional = frozenset({"num_unknown_tokens", "marks_apart"})

    vocab_size: int
    num_ordinary_tokens: int
    num_never_encoded_tokens: int
    unused_examples: list[str]
    renyi_efficiency: float | None
    overall: Yield
    sources: list[Yield]
    lengths: list[Length]
    num_unknown_tokens: int | None = None
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
    database: "DuckDBPyConnection", vocabulary: Vocabulary, sources: Mapping[str, SourceUse]
) -> Summary:
    """Compute the summary from the tables that `usage_database` made of this vocabulary and these sources."""
    ordinary = vocabulary.is_ordinary()
    efficiencies = {name: renyi_efficiency(use.token_counts[ordinary]) for name, use in sources.items()}
    total = sum((use.token_counts for use in sources.values()), np.zeros(len(ordinary), np.uint64))
    of_all = renyi_efficiency(total[ordinary])
    lengths = [Length(**row) for row in rows(database, "FROM usage_lengths ORDER BY num_bytes")]
    examples = rows(database, _UNUSED, _NUM_EXAMPLES)
    return Summary(
        vocab_size=len(ordinary),
        num_ordinary_tokens=sum(length.num_tokens for length in lengths),
        num_never_encoded_tokens=sum(length.num_unused for length in lengths),
        unused_examples=[row["readable"] for row in examples],
        renyi_efficiency=of_all,
        overall=_yield(rows(database, _OVERALL)[0], of_all),
        sources=[_yield(row, efficiencies[row["source"]]) for row in rows(database, "FROM usage_sources")],
        lengths=lengths,
        num_unknown_tokens=_num_unknown(vocabulary, total),
        marks_apart=_marks_apart(vocabulary, ordinary, total),
    )


def _marks_apart(
    vocabulary: Vocabulary, ordinary: NDArray[np.bool_], token_counts: NDArray[np.uint64]
) -> dict[str, float]:
    """The scripts whose marks are apart from their letters, among the tokens that occur and are text."""
    used = np.flatnonzero(ordinary & (token_counts > 0)).tolist()
    texts = (
        (vocabulary.tokens[token].decode("utf-8", "replace"), int(token_counts[token])) for token in used
    )
    shares = marks_apart(texts)
    return {script: round(share, 6) for script, share in shares.items()}


def _num_unknown(vocabulary: Vocabulary, token_counts: NDArray[np.uint64]) -> int | None:
    unknown = [token for token, kind in enumerate(vocabulary.kinds) if kind == "unknown"]
    return int(token_counts[unknown].sum()) if unknown else None


def to_markdown(summary: Summary, suspects: Sequence[Mapping[str, Any]] = ()) -> str:
    """`summary` as a Markdown document, with some rows of `vocab_suspects`."""
    never = f"{summary.num_never_encoded_tokens:,} of {summary.num_ordinary_tokens:,}"
    never += f" ({percent(summary.never_encoded_share)})"
    lines = [
        "# Use of the vocabulary",
        "",
        f"- Vocabulary: {summary.vocab_size:,} tokens, special and reserved ones included",
        f"- Ordinary tokens that never occur in what was encoded: {never}",
        *_unknown_line(summary),
        *_marks_line(summary),
        f"- Rényi efficiency (order {RENYI_ORDER}): {_number(summary.renyi_efficiency, 4)}",
        "",
        "## Sources",
        "",
        *table(_YIELD_HEAD, [_yield_cells(part) for part in (*summary.sources, summary.overall)]),
        "",
        "Text tokens: without those that begin and end documents, and those of fill-in-the-middle. Ratios",
        "are over text tokens.",
        "Rényi efficiency: of the ordinary tokens' frequencies, over the logarithm of their number.",
        "",
        "## Token lengths",
        "",
        *table(
            ("bytes", "tokens", "never used", "occurrences"),
            [_length_cells(part) for part in summary.lengths],
        ),
    ]
    return "\n".join([*lines, *_suspect_lines(suspects), *_examples(summary), ""])


def _suspect_lines(suspects: Sequence[Mapping[str, Any]]) -> list[str]:
    if not suspects:
        return []
    return [
        "",
        "## Suspects",
        "",
        "Tokens that a model would hardly see, though they are in the vocabulary; all are in the table",
        "`vocab_suspects`. Expected: as often as in the text that the tokenizer was trained on, or, where "
        "that",
        "is not known, as its rank says.",
        "",
        *table(
            ("token", "why", "expected", "occurrences", "from", "as in"),
            [
                [
                    f"`{row['text'].replace('`', chr(0x2BC))}`",
                    row["reason"].replace("_", " "),
                    f"{row['expected']:,.0f}",
                    f"{row['num_occurrences']:,}",
                    row["source"] or "–",
                    _example(row),
                ]
                for row in suspects
            ],
            left=(0, 1, 4, 5),
        ),
    ]


def _example(row: Mapping[str, Any]) -> str:
    """Where a suspect occurs in what was encoded, or else a pre-token of the training text that holds it."""
    shown = row.get("context") or row["example"]
    return f"`{shown.replace('`', chr(0x2BC))}`" if shown else "–"


def _unknown_line(summary: Summary) -> list[str]:
    if summary.unknown_share is None:
        return []
    share = percent(summary.unknown_share)
    return [f"- Unknown tokens, whose text is lost: {summary.num_unknown_tokens:,} ({share})"]


def _marks_line(summary: Summary) -> list[str]:
    if not summary.marks_apart:
        return []
    scripts = ", ".join(f"{script} ({share:.0%} of tokens)" for script, share in summary.marks_apart.items())
    return [
        f"- Vowel signs and other marks are apart from their letters in {scripts}: no token holds both, so "
        "words of these scripts take many tokens. What helps is a split pattern that keeps them together, "
        "such as o200k, and where it does, more text of these scripts, or more tokens"
    ]


def _yield(row: dict[str, Any], efficiency: float | None) -> Yield:
    """Return a row of `usage_sources`, with its ratios rounded to six digits and its Rényi efficiency."""
    known = {name: row[name] for name in Yield.model_fields if name in row}
    ratios = {name: round(v, 6) if isinstance(v, float) else v for name, v in known.items()}
    return Yield(**ratios, renyi_efficiency=efficiency)


def _yield_cells(part: Yield) -> list[str]:
    counts = (part.num_documents, part.num_tokens, part.num_text_tokens, part.num_bytes, part.num_chars)
    ratios = (part.bytes_per_token, part.chars_per_token)
    return [
        part.source,
        *(f"{count:,}" for count in counts),
        *(_number(ratio, 3) for ratio in ratios),
        percent(part.used_share, 1),
        _number(part.renyi_efficiency, 4),
    ]


def _length_cells(part: Length) -> list[str]:
    return [
        f"{value:,}" for value in (part.num_bytes, part.num_tokens, part.num_unused, part.num_occurrences)
    ]


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _examples(summary: Summary) -> list[str]:
    if not summary.unused_examples:
        return []
    shown = ", ".join(f"`{text.replace('`', chr(0x2BC))}`" for text in summary.unused_examples)
    more = summary.num_never_encoded_tokens - len(summary.unused_examples)
    tail = f", and {more:,} more in the table `usage_tokens`" if more else ""
    return ["", "## Tokens that never occur in what was encoded", "", f"{shown}{tail}"]
