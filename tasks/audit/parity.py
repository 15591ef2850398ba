"""`vocab_parity`: what the same sentences cost in each language, against a reference language.

The premium of a language is its tokens over those of the reference, over all lines; line N of every text is
the same sentence. Its interval is the 2.5th to 97.5th percentile of 1,000 bootstrap draws of lines, the
same for all languages, from numpy's Philox. The row `*` has the Gini coefficient of the languages' tokens.
Source: Petrov et al. 2023, "Language model tokenizers introduce unfairness between languages".
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokmill.tasks.audit.measurement import unknown_ids
from tokmill.tasks.audit.params import EVERY, check_language
from tokmill.tasks.audit.sources import ratio
from tokmill.tasks.core.errors import AuditError
from tokmill.tasks.formats.text.content import read_bytes
from tokmill.tasks.remote.location import Location
from tokmill.tokenizer import Tokenizer
from tokmill.tokenizer.core.text import split_lines

NUM_DRAWS = 1000
_PERCENTILES = (2.5, 97.5)
_I, _F, _S = pa.int64(), pa.float64(), pa.string()
SCHEMA = pa.schema(
    [
        *(("language", _S), ("reference", _S), ("num_lines", _I), ("num_tokens", _I), ("premium", _F)),
        *(("premium_low", _F), ("premium_high", _F), ("premium_median", _F), ("unknown_share", _F)),
        ("gini", _F),
    ]
)


def parity(tok: Tokenizer, texts: Mapping[str, Sequence[str]], reference: str, seed: int = 0) -> pa.Table:
    """Return the table `vocab_parity`.

    Args:
        tok: the tokenizer.
        texts: the lines of each language.
        reference: the language that the others are compared with.
        seed: decides the draws.

    Raises:
        AuditError: the texts have unlike numbers of lines, or none, or the reference is not among them.
    """
    check_parallel({language: len(lines) for language, lines in texts.items()}, reference)
    encoded = {language: tok.encode_batch(list(lines), as_text=True) for language, lines in texts.items()}
    counts = {language: np.diff(batch.offsets) for language, batch in encoded.items()}
    unknown = unknown_ids(tok)
    weights = _draws(len(counts[reference]), seed)
    rows = [
        {
            "language": language,
            "reference": reference,
            **_premium(found, counts[reference], weights),
            "unknown_share": _share_of(unknown, encoded[language].ids),
        }
        for language, found in counts.items()
    ]
    totals = np.array([found.sum() for found in counts.values()])
    every = {
        "language": EVERY,
        "reference": reference,
        "num_lines": len(counts[reference]),
        "num_tokens": int(totals.sum()),
        "gini": gini(totals),
    }
    return pa.Table.from_pylist([*rows, every], SCHEMA)


def check_parallel(num_lines: Mapping[str, int], reference: str) -> None:
    """Refuse texts that are not parallel; see `parity`."""
    for language in num_lines:
        try:
            check_language(language)
        except ValueError as error:
            raise AuditError(f"audit.parallel: {error}") from error
    if reference not in num_lines:
        raise AuditError(
            f"audit.reference={reference!r} is not a language of audit.parallel: {', '.join(num_lines)}"
        )
    wanted = num_lines[reference]
    for language, number in num_lines.items():
        if number != wanted or not number:
            raise AuditError(
                f"audit.parallel: {language} has {number} lines and {reference} {wanted}; line N of every "
                "file must be the same sentence, and there must be at least one"
            )


def read_parallel(files: Mapping[str, Location]) -> dict[str, list[str]]:
    """Return the lines of parallel texts by language; an empty file has none.

    Raises:
        AuditError: a file is not UTF-8, or a line is blank in one of them alone, which would make that
            language cheaper than it is.
    """
    texts = {language: _lines(language, path) for language, path in files.items()}
    for number, lines in enumerate(zip(*texts.values(), strict=False), 1):
        blank = {language for language, line in zip(texts, lines, strict=True) if not line.strip()}
        if blank and len(blank) < len(texts) and len({*map(len, texts.values())}) == 1:
            empty = next(language for language in texts if language in blank)
            full = next(language for language in texts if language not in blank)
            raise AuditError(
                f"audit.parallel: line {number} of {empty} is blank, that of {full} is not; line N of every "
                "file must be the same sentence: translate it, or take the line out of all files"
            )
    return texts


def _lines(language: str, path: Location) -> list[str]:
    try:
        return split_lines(read_bytes(path))
    except UnicodeDecodeError as error:
        raise AuditError(
            f"audit.parallel.{language}: {path} is not UTF-8 at byte {error.start}; convert the file"
        ) from error


def gini(amounts: NDArray[np.int64]) -> float | None:
    """Return the Gini coefficient of some amounts, rounded; None if they are all 0."""
    ordered, number = np.sort(amounts).astype(float), len(amounts)
    total = ordered.sum()
    places = np.arange(1, number + 1)
    return round(float((2 * places - number - 1) @ ordered / (number * total)), 6) if total else None


def _share_of(tokens: Sequence[int], ids: NDArray[Any]) -> float | None:
    """Return the share of some tokens among ids; None if there are no such tokens."""
    return ratio(int(np.isin(ids, tokens).sum()), len(ids)) if tokens else None


def _premium(
    found: NDArray[np.int64], reference: NDArray[np.int64], weights: NDArray[np.float64]
) -> dict[str, Any]:
    row = {"num_lines": len(found), "num_tokens": int(found.sum())}
    if not reference.sum():
        return row
    drawn = weights @ reference
    premiums = (weights @ found)[drawn > 0] / drawn[drawn > 0]
    low, high = np.percentile(premiums, _PERCENTILES).tolist() if len(premiums) else (None, None)
    both = (reference > 0) & (found > 0)
    return row | {
        "premium": ratio(int(found.sum()), int(reference.sum())),
        "premium_low": None if low is None else round(low, 6),
        "premium_high": None if high is None else round(high, 6),
        "premium_median": round(float(np.median(found[both] / reference[both])), 6) if both.any() else None,
    }


def _draws(num_lines: int, seed: int) -> NDArray[np.float64]:
    """Return how often each line is drawn in each of the draws: float64 [NUM_DRAWS, num_lines]."""
    bits = np.random.Philox(key=seed).random_raw(NUM_DRAWS * num_lines).reshape(NUM_DRAWS, num_lines)
    lines = (bits % np.uint64(num_lines)).astype(np.int64)
    return np.stack([np.bincount(row, minlength=num_lines) for row in lines]).astype(np.float64)
