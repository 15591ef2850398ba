"""The summary of an audit: `summary.json` is `AuditSummary`, and `summary.md` the same for people.

All numbers are from the audit's tables; a ratio is None if its denominator is 0.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict

from tokmill.tasks.audit.gates import Comparison
from tokmill.tasks.audit.params import EVERY
from tokmill.tasks.audit.sources import ALL, ratio
from tokmill.tasks.core.markdown import percent, table
from tokmill.tasks.formats.files.manifests import read_model

SUMMARY_FILE = "summary.json"
_NUM_EXAMPLES = 30
_UNUSED_IN = {"training": "the text that it was trained on", "text": "the text that was read"}
Text = Literal["held_out", "corpus"]
TEXTS = {"held_out": "the documents that are held out", "corpus": "a sample of the corpus"}
_HEAD = (
    *("source", "documents", "tokens", "bytes per token", "characters per token", "tokens per word"),
    *("whole words", "tokens for 90 %", "Rényi efficiency", "bits per byte"),
)
_PREMIUMS = ("premium", "premium_low", "premium_high", "premium_median")


class Vocabulary(BaseModel):
    """What is wrong with the tokens of a vocabulary.

    Attributes:
        num_ordinary: tokens that are neither special nor reserved.
        num_unused: ordinary tokens that do not occur in the text `unused_in`.
        unused_in: `training` (the counts of the text that the tokenizer was trained on), or `text`.
        num_unreachable: tokens of several bytes that no text gives; `unreachable` has some of them.
        num_redundant: tokens that only led to others in training; None without counts.
        num_duplicates: tokens whose text is that of another one in Unicode's NFC.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    num_ordinary: int
    num_unused: int
    unused_in: Literal["training", "text"]
    unused: list[str]
    num_unreachable: int
    unreachable: list[str]
    num_redundant: int | None
    num_duplicates: int

    @property
    def unused_share(self) -> float | None:
        """Unused tokens over ordinary ones."""
        return ratio(self.num_unused, self.num_ordinary)


class AuditSummary(BaseModel):
    """The content of `summary.json`.

    Attributes:
        text: what was read.
        sources: rows of `vocab_sources`.
        parity: rows of `vocab_parity`.
        entropy: rows of `vocab_entropy`.
        marks_apart: the scripts whose marks (vowel signs) are never in one token with their letters, with the
            share of tokens that begin with one.
        probes: the probes whose expectation is not met: group, name, expectation, remark.
        num_probes: probes with an expectation.
        regressions: for each source its tokens over those of the tokenizer that it is compared with, minus 1.
        limits: what was compared with the gate's limits.
        gate: see `gates.verdict`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    family: str
    vocab_size: int
    text: Text
    sources: list[dict[str, Any]]
    parity: list[dict[str, Any]]
    entropy: list[dict[str, Any]]
    vocabulary: Vocabulary
    marks_apart: dict[str, float]
    probes: list[dict[str, str]]
    num_probes: int
    regressions: dict[str, float | None]
    limits: list[dict[str, Any]]
    gate: str

    @property
    def overall(self) -> dict[str, Any]:
        """The row of all sources, or that of the only one."""
        return next(
            (row for row in self.sources if row["source"] == ALL), self.sources[-1] if self.sources else {}
        )

    def entropy_of(self, source: str) -> dict[str, Any]:
        """The row of `vocab_entropy` of a source."""
        return next((row for row in self.entropy if row["source"] == source), {})


def read_summary(path: Path) -> AuditSummary:
    """Read the summary of the audit artifact in the directory `path`.

    Raises:
        StoreError: it is missing or broken.
    """
    return read_model(path / SUMMARY_FILE, AuditSummary, "audit summary")


def describe_vocabulary(tokens: pa.Table, token_counts: np.ndarray) -> Vocabulary:
    """Sum up `vocab_tokens`.

    Args:
        tokens: the table.
        token_counts: uint64 [vocab_size], occurrences in the text that was read.
    """
    ordinary = tokens.filter(pc.is_valid(tokens["reachable"]))
    trained = ordinary["num_training"].null_count < len(ordinary)
    ids = ordinary["token_id"].to_numpy()
    counts = ordinary["num_training"].to_numpy() if trained else token_counts[ids]
    several = pc.greater(ordinary["num_bytes"], 1)
    lost = ordinary.filter(pc.and_(pc.invert(ordinary["reachable"]), several))
    unused = ordinary.filter(pa.array(counts == 0))
    longest = unused.take(pc.sort_indices(unused, [("num_bytes", "descending"), ("token_id", "ascending")]))
    return Vocabulary(
        num_ordinary=len(ordinary),
        num_unused=len(unused),
        unused_in="training" if trained else "text",
        unused=longest["text"][:_NUM_EXAMPLES].to_pylist(),
        num_unreachable=len(lost),
        unreachable=lost["text"][:_NUM_EXAMPLES].to_pylist(),
        num_redundant=pc.sum(ordinary["redundant"]).as_py() if trained else None,
        num_duplicates=len(tokens) - tokens["duplicate_of"].null_count,
    )


def unmet(probes: pa.Table) -> list[dict[str, str]]:
    """Return the probes whose expectation is not met; those of the profile first."""
    rows = probes.filter(pc.invert(pc.fill_null(probes["met"], True)))
    found = rows.select(["group", "probe", "expectation", "remark"]).to_pylist()
    return sorted(found, key=lambda row: bool(row["group"] != "own"))


def limits_of(comparisons: Sequence[Comparison]) -> list[dict[str, Any]]:
    """Return the rows of `vocab_gates`."""
    return [one._asdict() for one in comparisons]


def to_markdown(summary: AuditSummary) -> str:
    """`summary` as a Markdown document."""
    lines = [
        "# Tokenizer audit",
        "",
        f"- Gate: **{summary.gate}**",
        f"- Family {summary.family}, {summary.vocab_size:,} tokens, special and reserved ones included",
        f"- Text: {TEXTS[summary.text]}",
        *_vocabulary_lines(summary.vocabulary),
        *_unknown_line(summary.overall),
        *_marks_line(summary.marks_apart),
        "",
        "## Sources",
        "",
        *table(_HEAD, [_cells(row, summary.entropy_of(row["source"])) for row in summary.sources]),
        "",
        "A word is what Unicode's rules bound, with no dictionary; in scripts without spaces it is a "
        "character.",
        "After ± is half of the 95 % interval, from how the documents differ.",
        "Bits per byte: what a trigram model of the tokens needs for the text, trained on one half of the "
        "documents",
        "and scored on the other; a dash where text is lost, which would cost nothing.",
        *_parity_lines(summary.parity),
        *_limit_lines(summary.limits),
        *_probe_lines(summary),
        *_examples(
            "Tokens that no text gives", summary.vocabulary.unreachable, summary.vocabulary.num_unreachable
        ),
        *_examples(
            f"Tokens that never occur in {_UNUSED_IN[summary.vocabulary.unused_in]}",
            summary.vocabulary.unused,
            summary.vocabulary.num_unused,
        ),
        "",
    ]
    return "\n".join(lines)


def _cells(row: Mapping[str, Any], entropy: Mapping[str, Any]) -> list[str]:
    return [
        "all" if row["source"] == ALL else row["source"],
        f"{row['num_documents']:,}",
        f"{row['num_tokens']:,}",
        _number(row["bytes_per_token"], 3) + _error(row["bytes_per_token_error"]),
        *(_number(row[name], 3) for name in ("chars_per_token", "fertility")),
        percent(row["whole_share"], 1),
        "–" if row["tokens_90"] is None else f"{row['tokens_90']:,}",
        _number(entropy.get("renyi_efficiency"), 4),
        _number(entropy.get("trigram_bits_per_byte"), 3),
    ]


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _error(value: float | None) -> str:
    return "" if value is None else f" ± {value:.3f}"


def _vocabulary_lines(found: Vocabulary) -> list[str]:
    share = "" if found.unused_share is None else f" ({percent(found.unused_share)})"
    lines = [
        f"- Ordinary tokens that never occur in {_UNUSED_IN[found.unused_in]}: {found.num_unused:,} of "
        f"{found.num_ordinary:,}{share}"
    ]
    if found.num_redundant:
        lines.append(f"- Of these only led to longer ones in training: {found.num_redundant:,}")
    if found.num_unreachable:
        lines.append(f"- Tokens of several bytes that no text gives: {found.num_unreachable:,}")
    if found.num_duplicates:
        lines.append(
            f"- Tokens whose text is that of another one, in Unicode's NFC: {found.num_duplicates:,}"
        )
    return lines


def _unknown_line(overall: Mapping[str, Any]) -> list[str]:
    if overall.get("unknown_share") is None:
        return []
    share = percent(overall["unknown_share"])
    return [f"- Unknown tokens, whose text is lost: {overall['num_unknown']:,} ({share})"]


def _marks_line(found: Mapping[str, float]) -> list[str]:
    if not found:
        return []
    scripts = ", ".join(f"{script} ({share:.0%} of tokens)" for script, share in found.items())
    return [
        f"- Vowel signs and other marks are apart from their letters in {scripts}: no token holds both, so "
        "words of these scripts take many tokens. What helps is a split pattern that keeps them together, "
        "such as o200k, and where it does, more text of these scripts, or more tokens"
    ]


def _parity_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    languages = [row for row in rows if row["language"] != EVERY]
    if not languages:
        return []
    dearest = sorted(languages, key=lambda row: (-(row["premium"] or 0), row["language"]))
    every = next((row["gini"] for row in rows if row["gini"] is not None), None)
    gini = "" if every is None else f" Gini coefficient of the languages' tokens: {every:.3f}."
    if len(languages) == 1:
        gini = " There is one language alone, so there is nothing to compare it with."
    if all(row["premium"] is None for row in languages):
        gini = f" {rows[0]['reference']} has no tokens, so there are no premiums."
    return [
        "",
        "## The same sentences in each language",
        "",
        f"Tokens over those of {rows[0]['reference']}, with the interval of 95 % of 1,000 draws of "
        f"lines.{gini}",
        "",
        *table(
            ("language", "tokens", "premium", "from", "to", "median of lines", "unknown"),
            [
                [
                    *(row["language"], f"{row['num_tokens']:,}"),
                    *(_number(row[name], 3) for name in _PREMIUMS),
                    percent(row["unknown_share"]),
                ]
                for row in dearest
            ],
        ),
    ]


def _limit_lines(limits: Sequence[Mapping[str, Any]]) -> list[str]:
    if not limits:
        return []
    says = {True: "passed", False: "**failed**", None: "not measured"}
    return [
        "",
        "## Limits",
        "",
        *table(
            ("limit", "of", "value", "threshold", "verdict", "missing"),
            [
                [
                    row["limit"],
                    row["subject"],
                    _number(row["value"], 4),
                    f"{row['threshold']:g}",
                    says[row["passed"]],
                    row["missing"] or "",
                ]
                for row in limits
            ],
            left=(0, 1, 4, 5),
        ),
    ]


def _probe_lines(summary: AuditSummary) -> list[str]:
    if not summary.num_probes:
        return []
    rows = [[row["group"], row["probe"], row["expectation"], row["remark"]] for row in summary.probes]
    return [
        "",
        "## Probes",
        "",
        f"Of {summary.num_probes} expectations {len(rows)} are not met; whether that matters depends on what "
        "a model is for. The table `vocab_probes` has all probes.",
        *(["", *table(("group", "probe", "expected", "found"), rows, left=(0, 1, 2, 3))] if rows else []),
    ]


def _examples(title: str, examples: Sequence[str], number: int) -> list[str]:
    if not examples:
        return []
    shown = ", ".join(f"`{text.replace('`', chr(0x2BC))}`" for text in examples)
    more = number - len(examples)
    return [
        "",
        f"## {title}",
        "",
        shown + (f", and {more:,} more in the table `vocab_tokens`" if more else ""),
    ]
