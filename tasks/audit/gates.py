"""The gate of the audit: limits, each compared with the rows of a table that it is about.

Every comparison is a row of `vocab_gates`: limit, subject (a source, a language, or `vocabulary`), value,
threshold, passed. A value that could not be measured (NULL) neither passes nor fails.
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
    ]
)


class Comparison(NamedTuple):
    """One limit, and the row that it was compared with."""

    limit: str
    subject: str
    value: float | None
    threshold: float
    passed: bool | None

    def __str__(self) -> str:
        least = self.limit.startswith("min_")
        of = "" if self.subject == VOCABULARY else f"'{self.subject}': "
        value = "not measured" if self.value is None else f"{self.value:g}"
        return (
            f"{of}{self.limit.split('_', 1)[1]}={value} is {'below' if least else 'above'} {self.threshold:g}"
        )


def compare(
    params: AuditParams,
    *,
    sources: Sequence[Mapping[str, Any]],
    premiums: Sequence[Mapping[str, Any]],
    regressions: Mapping[str, float | None],
    unused_share: float | None,
    num_unreachable: int,
) -> list[Comparison]:
    """Compare all limits that are set.

    Args:
        params: the limits.
        sources: rows of `vocab_sources`, one per source.
        premiums: rows of `vocab_parity`, one per language.
        regressions: for each source its tokens over those of the other tokenizer, minus 1.
        unused_share: see `AuditParams.max_unused_share`.
        num_unreachable: tokens of several bytes that no text gives.

    Raises:
        AuditError: a limit is for a source or language that does not exist, or needs what was not given.
    """
    found: list[Comparison] = []
    for limit, column in _OF_SOURCES.items():
        limits = getattr(params, limit)
        values = {row["source"]: row[column] for row in sources}
        found += _all(limit, limits, values, "source")
    found += _all(
        "max_premium", params.max_premium, {row["language"]: row["premium"] for row in premiums}, "language"
    )
    if params.max_premium is not None and not premiums:
        raise AuditError("audit.max_premium needs parallel text: name the files in audit.parallel")
    if params.max_regression is not None and not regressions:
        raise AuditError(
            "audit.max_regression needs a tokenizer to compare with: name one in audit.compare_with"
        )
    found += _all("max_regression", params.max_regression, regressions, "source")
    if params.max_unused_share is not None:
        found.append(_one("max_unused_share", VOCABULARY, unused_share, params.max_unused_share))
    if params.no_unreachable:
        found.append(_one("max_unreachable", VOCABULARY, num_unreachable, 0))
    return found


def verdict(comparisons: Sequence[Comparison]) -> str:
    """Return the gate's verdict.

    Returns:
        "failed: " and each comparison that failed; else "passed", or "passed, but not measured: " and the
        limits that could not be compared; "not measured: " and them, if that is all of them; "none" if no
        limit is set.
    """
    failed = [str(one) for one in comparisons if one.passed is False]
    if failed:
        return f"failed: {'; '.join(failed)}"
    unmeasured = "; ".join(f"{one.limit} of '{one.subject}'" for one in comparisons if one.passed is None)
    if any(one.passed for one in comparisons):
        return f"passed, but not measured: {unmeasured}" if unmeasured else "passed"
    return f"not measured: {unmeasured}" if unmeasured else "none"


_OF_SOURCES = {
    "min_bytes_per_token": "bytes_per_token",
    "max_fertility": "fertility",
    "max_unknown_share": "unknown_share",
}


def _all(
    limit: str, limits: Limits | None, values: Mapping[str, float | None], what: str
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
            yield _one(limit, name, value, threshold)


def _one(limit: str, subject: str, value: float | None, threshold: float) -> Comparison:
    if value is None:
        return Comparison(limit, subject, None, threshold, None)
    passed = value >= threshold if limit.startswith("min_") else value <= threshold
    return Comparison(limit, subject, value, threshold, passed)
