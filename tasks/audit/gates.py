"""The gate of the audit: limits, each compared with the rows of a table that it is about.

Every comparison is a row of `vocab_gates`: limit, subject (a source, a language, or `vocabulary`), value,
threshold, passed, missing. What could not be measured has neither value nor verdict (NULL), and `missing`
says which text it lacks. A gate that did not measure one of its limits did not pass.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from tokmill.tasks.audit.params import AuditParams, Limits, limit_of, named
from tokmill.tasks.core.errors import AuditError

VOCABULARY = "vocabulary"
SCHEMA = pa.schema(
    [
        *(("limit", pa.string()), ("subject", pa.string()), ("value", pa.float64())),
        *(("threshold", pa.float64()), ("passed", pa.bool_())),
        ("missing", pa.string()),
    ]
)
_LIMITS_OF_SOURCES = {
    "min_bytes_per_token": "bytes_per_token",
    "max_fertility": "fertility",
    "max_unknown_share": "unknown_share",
}
_NO_HELD_OUT = "none of its documents with text is held out: raise holdout.share or holdout.num_documents"
_NO_TEXT = "it has no text in the sample of the corpus: give it documents that are not empty"
_NO_REFERENCE = "the reference language has no tokens: audit.parallel needs lines that are not blank"


class Comparison(NamedTuple):
    """One limit, and the row that it was compared with."""

    limit: str
    subject: str
    value: float | None
    threshold: float
    passed: bool | None
    missing: str | None = None

    def __str__(self) -> str:
        least = self.limit.startswith("min_")
        of = "" if self.subject == VOCABULARY else f"'{self.subject}': "
        if self.value is None:
            return f"{of}{self.limit}: {self.missing}"
        return (
            f"{of}{self.limit.split('_', 1)[1]}={self.value:g} is {'below' if least else 'above'} "
            f"{self.threshold:g}"
        )


def compare(
    params: AuditParams,
    *,
    sources: Sequence[Mapping[str, Any]],
    premiums: Sequence[Mapping[str, Any]],
    regressions: Mapping[str, float | None],
    unused_share: float | None,
    num_unreachable: int,
    held_out: bool = False,
) -> list[Comparison]:
    """Compare all limits that are set.

    Args:
        params: the limits.
        sources: rows of `vocab_sources`, one per source.
        premiums: rows of `vocab_parity`, one per language.
        regressions: for each source its tokens over those of the other tokenizer, minus 1.
        unused_share: see `AuditParams.max_unused_share`.
        num_unreachable: tokens of several bytes that no text gives.
        held_out: whether the sources' text is that of the documents held out.

    Raises:
        AuditError: a limit is for a source or language that does not exist, or needs what was not given.
    """
    found, no_text = list[Comparison](), _NO_HELD_OUT if held_out else _NO_TEXT
    for limit, column in _LIMITS_OF_SOURCES.items():
        limits = getattr(params, limit)
        values = {row["source"]: _value(row, column) for row in sources}
        found += _all(limit, limits, values, "source", no_text)
    dearest = {row["language"]: row["premium"] for row in premiums}
    found += _all("max_premium", params.max_premium, dearest, "language", _NO_REFERENCE)
    if params.max_premium is not None and not premiums:
        raise AuditError("audit.max_premium needs parallel text: name the files in audit.parallel")
    if params.max_regression is not None and not regressions:
        raise AuditError(
            "audit.max_regression needs a tokenizer to compare with: name one in audit.compare_with"
        )
    found += _all("max_regression", params.max_regression, regressions, "source", no_text)
    if params.max_unused_share is not None:
        found.append(_one("max_unused_share", VOCABULARY, unused_share, params.max_unused_share))
    if params.no_unreachable:
        found.append(_one("max_unreachable", VOCABULARY, num_unreachable, 0))
    return found


def verdict(comparisons: Sequence[Comparison]) -> str:
    """Return the gate's verdict.

    Returns:
        "failed: " and each comparison that failed; else "not measured: " and each limit that lacks text, with
        what is missing; else "passed"; "none" if no limit is set.
    """
    for word, passed in (("failed", False), ("not measured", None)):
        found = [str(one) for one in comparisons if one.passed is passed]
        if found:
            return f"{word}: {'; '.join(found)}"
    return "passed" if comparisons else "none"


def not_passed(gate: str) -> bool:
    """Whether a gate failed, or lacked the text to measure one of its limits."""
    return gate.startswith(("failed", "not measured"))


def _value(row: Mapping[str, Any], column: str) -> float | None:
    """A figure of a source; a vocabulary without an unknown token loses nothing, whatever the text."""
    return 0.0 if column == "unknown_share" and row["num_unknown"] is None else row[column]


def _all(
    limit: str, limits: Limits | None, values: Mapping[str, float | None], what: str, missing: str
) -> Iterator[Comparison]:
    """Compare a limit with the value of every source or language that it is for."""
    unknown = [name for name in named(limits) if name not in values]
    if unknown:
        raise AuditError(
            f"audit.{limit}: there is no {what} '{unknown[0]}'; there are {', '.join(values) or 'none'}"
        )
    for name, value in values.items():
        threshold = limit_of(limits, name)
        if threshold is not None:
            yield _one(limit, name, value, threshold, missing)


def _one(
    limit: str, subject: str, value: float | None, threshold: float, missing: str = "it has no ordinary token"
) -> Comparison:
    if value is None:
        return Comparison(limit, subject, None, threshold, None, missing)
    passed = value >= threshold if limit.startswith("min_") else value <= threshold
    return Comparison(limit, subject, value, threshold, passed)
