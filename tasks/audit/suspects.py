"""`vocab_suspects`: tokens that a model would hardly ever see, the most suspicious first.

    rank             int64    from 1
    token_id         uint32
    text             string   the token as one readable line
    reason           string   `unreachable`, `fragment` (no text alone), `never_seen`, `rare`, `under_trained`
    score            double   in bits, see below
    num_training     uint64   as in `vocab_tokens`
    num_occurrences  uint64   in the text that a model would see
    expected         double   occurrences that are to be expected; NULL where nothing tells
    source           string   where it occurs most in training, else in the text; NULL if in neither
    example          string   a token that is made from this one, the first that was merged

Where the training counts are known, a token is expected as often per token of text as in training, and its
score is log2((1 + expected) / (1 + occurrences)).

A vocabulary from elsewhere tells less. Its merges are in the order of their frequency, so a line is fitted
through the logarithms of rank and use on the tokens that are used; use counts a token inside longer ones, as
a merge does. To the deviation from it these hints are added:

    the text   log2 of the share of the tokens of its scripts that are seen: a language that the text lacks
               says nothing about its tokens
    repeated   log2((rank + 1) / (gap + 1)), where gap is the number of merges between the token and a part,
               or a token made from it. Both were then about as frequent, so one is found only in the other:
               the pieces of one string that was repeated (` externalTo`, ` externalToEVA`, …)
    name       8 bits for a capital after a small letter, as in identifiers and user names
    doubled    6 bits for two equal parts (`ÃÂÃÂ`), as in text that was encoded wrongly, and rules

The code reads no list of known tokens. But the two numbers of bits, and which hints to take, were chosen by
what they find of the list of GPT-2's below, so those figures flatter them. cl100k and o200k were looked at
only after that; their first suspects (`useRalativeImagePath`, ` ForCanBeConvertedToForeach`; spam in Thai and
Chinese) have not been compared with a list.

Single bytes that are no text alone are no suspects. `rare` is a token used less than 1/64 of what is to be
expected. `under_trained` has none of the other reasons, but an indicator (`embeddings`; the lower the less
trained) 3 or more robust standard deviations below the median, which are added to the score of any token.

Measured on GPT-2, the text being five corpora (30 MB each, one of 16) and NTREX, against the 141 tokens of
Rumbelow and Watkins 2023, 19 of which are used in that text: 37 of the first 50 suspects are published, 53 of
the first 100, 67 of 200, 79 of 1,000 (of 12,814); at 100, precision is 0.53 and recall 0.38. By rank and use
without hints, 2 of the first 100 are. 24 of the 141 are control characters, which have no rank and come late.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from tokmill.tasks.audit.expected import Counts, Floats, Merges, by_rank, by_training, hints, uses
from tokmill.tasks.audit.tokens import EXTRAORDINARY

RARE = 64
_DEVIATIONS = 3.0
_NORMAL = 1.4826  # standard deviation of a normal distribution over its median absolute deviation
_I, _F, _S = pa.int64(), pa.float64(), pa.string()
SCHEMA = pa.schema(
    [
        *(("rank", _I), ("token_id", pa.uint32()), ("text", _S), ("reason", _S), ("score", _F)),
        *(("num_training", pa.uint64()), ("num_occurrences", pa.uint64()), ("expected", _F)),
        *(("source", _S), ("example", _S)),
    ]
)


def find_suspects(
    tokens: pa.Table,
    occurrences: Counts,
    *,
    by_source: Mapping[str, Counts] | None = None,
    training_by_source: Mapping[str, Counts] | None = None,
    indicator: Floats | None = None,
) -> pa.Table:
    """Return the table `vocab_suspects`.

    Args:
        tokens: the table `vocab_tokens`.
        occurrences: uint64 [vocab_size], of each id in the text that a model would see.
        by_source: the same by source.
        training_by_source: the same of the training text.
        indicator: float64 [vocab_size], the lower the less trained; NaN for ids without one.

    Raises:
        ValueError: an array has another length than `occurrences`.
    """
    size = len(occurrences)
    _check_lengths(size, by_source or {}, training_by_source or {}, indicator)
    vocabulary = Merges.of(tokens, size)
    known = tokens["num_training"].null_count < len(tokens)
    used = (
        occurrences.astype(np.float64)
        if known
        else uses(vocabulary.merged, vocabulary.left, vocabulary.right, occurrences)
    )
    expected = by_training(tokens, vocabulary.ids, occurrences) if known else by_rank(vocabulary.rank, used)
    score = np.nan_to_num(np.log2((1 + expected) / (1 + used)))
    score = score if known else score + hints(vocabulary, occurrences)
    low = _deviations(indicator, size)
    score = score + np.where(low >= _DEVIATIONS, low, 0.0)
    reasons = _reasons(vocabulary, occurrences, used, expected, low)
    sources = _sources(by_source or {}, training_by_source or {}, size)
    return _table(vocabulary, reasons, np.round(score, 6), occurrences, expected, sources)


def _check_lengths(
    size: int, by_source: Mapping[str, Counts], training: Mapping[str, Counts], indicator: Floats | None
) -> None:
    arrays: dict[str, Any] = {
        **{f"by_source {k}": v for k, v in by_source.items()},
        **{f"training_by_source {k}": v for k, v in training.items()},
    }
    if indicator is not None:
        arrays["indicator"] = indicator
    for name, array in arrays.items():
        if len(array) != size:
            raise ValueError(
                f"suspects: {name} has {len(array)} ids, occurrences {size}; count with one vocabulary"
            )


def _deviations(indicator: Floats | None, size: int) -> Floats:
    """Return how many robust standard deviations each indicator lies below the median; 0 without one."""
    if indicator is None or not np.isfinite(indicator).any():
        return np.zeros(size)
    median = np.nanmedian(indicator)
    scale = _NORMAL * float(np.nanmedian(np.abs(indicator - median)))
    return np.nan_to_num((median - indicator) / scale) if scale > 0 else np.zeros(size)


def _reasons(
    vocabulary: Merges, occurrences: Counts, used: Floats, expected: Floats, low: Floats
) -> list[str | None]:
    """Return the reason of each row of `vocab_tokens`; None if it is no suspect."""
    columns = [vocabulary.tokens[name].to_pylist() for name in ("kind", "reachable", "is_utf8", "num_bytes")]
    found: list[str | None] = []
    for token, kind, reachable, text, num_bytes in zip(vocabulary.ids.tolist(), *columns, strict=True):
        if kind in EXTRAORDINARY or (not text and num_bytes == 1):
            found.append(None)
        elif not occurrences[token]:
            found.append("never_seen" if text and reachable else "fragment" if not text else "unreachable")
        elif (1 + used[token]) * RARE < expected[token]:
            found.append("rare")
        else:
            found.append("under_trained" if low[token] >= _DEVIATIONS else None)
    return found


def _sources(by_source: Mapping[str, Counts], training: Mapping[str, Counts], size: int) -> list[str | None]:
    """Return the source of each id: the first of those with the most."""
    found: list[str | None] = [None] * size
    for counts in (by_source, training):
        if counts:
            names, table = list(counts), np.stack(list(counts.values()))
            most = table.argmax(axis=0)
            for token in np.flatnonzero(table.max(axis=0)).tolist():
                found[token] = names[most[token]]
    return found


def _table(
    vocabulary: Merges,
    reasons: list[str | None],
    score: Floats,
    occurrences: Counts,
    expected: Floats,
    sources: list[str | None],
) -> pa.Table:
    place = np.array([i for i, reason in enumerate(reasons) if reason], np.int64)
    ids = vocabulary.ids[place]
    order = np.lexsort((ids, -score[ids]))
    place, ids = place[order], ids[order]
    rows = vocabulary.tokens.take(pa.array(place))
    examples = _examples(vocabulary)
    columns = {
        "rank": np.arange(1, len(ids) + 1),
        "token_id": rows["token_id"],
        "text": rows["text"],
        "reason": [reasons[i] for i in place.tolist()],
        "score": score[ids],
        "num_training": rows["num_training"],
        "num_occurrences": occurrences[ids],
        "expected": pa.array(np.round(expected[ids], 6), from_pandas=True),
        "source": [sources[i] for i in ids.tolist()],
        "example": [examples.get(i) for i in ids.tolist()],
    }
    return pa.table(columns, schema=SCHEMA)


def _examples(vocabulary: Merges) -> dict[int, str]:
    """Return for each part the first token that is merged from it."""
    texts = dict(zip(vocabulary.ids.tolist(), vocabulary.tokens["text"].to_pylist(), strict=True))
    found: dict[int, str] = {}
    for token in vocabulary.merged.tolist():
        for part in (int(vocabulary.left[token]), int(vocabulary.right[token])):
            found.setdefault(part, texts[token])
    return found
