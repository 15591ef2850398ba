"""`vocab_suspects`: tokens that a model would hardly ever see, such as " SolidGoldMagikarp".

A token is expected as often as in the counted training text; without counts, as often as a line through the
logarithms of rank and frequency says, times `exp` of the weights of `_SIGNS` (chosen on GPT-2's vocabulary)
that it shows. The score is the logarithm of expected over found, both plus 1; unreachable tokens come
first.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tokmill.tokenizer.core.pretoken_counts import PretokenCounts

SCHEMA = pa.schema(
    [
        *(("rank", pa.int64()), ("token_id", pa.uint32()), ("text", pa.string()), ("reason", pa.string())),
        *(("score", pa.float64()), ("num_training", pa.uint64()), ("num_occurrences", pa.uint64())),
        *(("expected", pa.float64()), ("source", pa.string()), ("example", pa.string())),
    ]
)
_SIGNS = {"name": 5.0, "doubled": 4.0, "alone": 1.0, "longer": 0.2}
_MOST_LENGTH = 20
_FAR = 1 << 62
_FIRST_RANKS = 1000  # added to ranks: the most frequent tokens are not on the line
_RARE = 100
_UNREACHABLE, _FRAGMENT = 100.0, -100.0
_NUM_EXAMPLES = 200


def find_suspects(
    tokens: pa.Table,
    occurrences: NDArray[np.uint64],
    *,
    training: Mapping[str, NDArray[np.uint64]] | None = None,
    counts: Iterable[PretokenCounts] | None = None,
) -> pa.Table:
    """Return the table `vocab_suspects`, the most suspicious first.

    Args:
        tokens: `vocab_tokens`.
        occurrences: uint64 [vocab_size], how often each token occurs in what was encoded.
        training: by source, how often each token occurs in the training text: uint64 [vocab_size].
        counts: the pre-tokens of the training text, source by source, for examples.
    """
    ordinary = tokens.filter(pc.is_valid(tokens["reachable"]))
    ids = ordinary["token_id"].to_numpy()
    found = occurrences[ids].astype(np.float64)
    by_source = {name: given[ids] for name, given in (training or {}).items()}
    expected = _by_training(by_source, found) if by_source else _by_rank(ordinary, found)
    score = np.log((expected + 1) / (found + 1))
    if not by_source:
        score += signs(ordinary, found)
    reasons = _reasons(ordinary, expected, found)
    score += np.select([reasons == "unreachable", reasons == "fragment"], [_UNREACHABLE, _FRAGMENT], 0.0)
    score = np.round(score, 6)  # before the order: logarithms differ in the last place between machines
    chosen = np.flatnonzero(reasons != "")
    order = chosen[np.lexsort((ids[chosen], -score[chosen]))]
    columns: dict[str, Any] = {
        "rank": np.arange(1, len(order) + 1),
        "token_id": ids[order],
        "text": ordinary["text"].take(pa.array(order)).to_pylist(),
        "reason": reasons[order].tolist(),
        "score": score[order],
        "num_training": sum(by_source.values(), np.zeros(len(ids), np.uint64))[order] if by_source else None,
        "num_occurrences": occurrences[ids[order]],
        "expected": np.round(expected[order], 3),
        "source": _sources(by_source, order),
        "example": _examples(ordinary["token"].take(pa.array(order)).to_pylist(), counts),
    }
    filled = {name: [None] * len(order) if given is None else given for name, given in columns.items()}
    return pa.table(filled, schema=SCHEMA)


def _by_training(
    by_source: Mapping[str, NDArray[np.uint64]], found: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return how often tokens are expected: as in the training text, for as many tokens."""
    trained = sum((given.astype(np.float64) for given in by_source.values()), np.zeros(len(found)))
    total = trained.sum()
    return trained * (found.sum() / total) if total else trained


def _by_rank(ordinary: pa.Table, found: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how often tokens are expected at their ranks: a line through those that occur, in logarithms."""
    ranks = _numbers(ordinary["rank"])
    fitted = (found > 0) & (ranks >= 0)
    if len(np.unique(ranks[fitted])) < 2:
        return np.zeros(len(found))
    places = np.log(np.maximum(ranks, 0) + _FIRST_RANKS)
    slope, start = _line(places[fitted], np.log(found[fitted]))
    return np.where(ranks >= 0, np.round(np.exp(start + slope * places), 6), 0.0)


def _line(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[float, float]:
    """Return slope and intercept of the line of least squares."""
    middle = math.fsum(x.tolist()) / len(x), math.fsum(y.tolist()) / len(y)
    across, up = x - middle[0], y - middle[1]
    slope = math.fsum((across * up).tolist()) / math.fsum((across * across).tolist())
    return slope, middle[1] - slope * middle[0]


def signs(ordinary: pa.Table, found: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the weight of the signs of each token, float64 [rows]; see the module.

    Args:
        ordinary: rows of `vocab_tokens`.
        found: float64 [rows], how often each token occurs.
    """
    words = ordinary["word"].to_pylist()
    variants = Counter(word for word in words if word is not None)
    known = {
        "name": _are_names(ordinary),
        "doubled": _is_doubled(ordinary) & np.array([word is not None for word in words], np.bool_),
        "alone": np.array([word is None or variants[word] == 1 for word in words], np.bool_),
        "longer": np.minimum(_numbers(ordinary["num_chars"]), _MOST_LENGTH).clip(0),
    }
    weights = sum((_SIGNS[name] * values for name, values in known.items()), np.zeros(len(words)))
    return weights + _follows(ordinary) + _script_shares(ordinary, found)


def _are_names(ordinary: pa.Table) -> NDArray[np.bool_]:
    """Whether a token has an upper case letter right after a lower case one."""
    names = np.zeros(len(ordinary), np.bool_)
    for k in np.flatnonzero(pc.equal(ordinary["casing"], "mixed").to_numpy()).tolist():
        text = ordinary["token"][k].as_py().decode("utf-8", "replace")
        names[k] = any(before.islower() and after.isupper() for before, after in pairwise(text))
    return names


def _is_doubled(ordinary: pa.Table) -> NDArray[np.bool_]:
    left, right = _numbers(ordinary["left"]), _numbers(ordinary["right"])
    return np.asarray((left >= 0) & (left == right))


def _follows(ordinary: pa.Table) -> NDArray[np.float64]:
    """Return the weight of each token for the ranks between it and its parts, or what it is a part of."""
    ids, ranks = ordinary["token_id"].to_numpy(), _numbers(ordinary["rank"])
    size = int(ids.max(initial=0)) + 1
    rank_of, gaps = np.full(size, -1, np.int64), np.full(size, _FAR, np.int64)
    rank_of[ids] = ranks
    for parts in (_numbers(ordinary["left"]), _numbers(ordinary["right"])):
        has = (parts >= 0) & (parts < size) & (ranks >= 0)
        before = rank_of[np.where(has, parts, 0)]
        has &= (before >= 0) & (before < ranks)
        gap = ranks[has] - before[has]
        np.minimum.at(gaps, ids[has], gap)
        np.minimum.at(gaps, parts[has], gap)
    weights = np.log((np.maximum(ranks, 0) + 1) / (gaps[ids] + 1))
    return np.asarray(np.where(ranks >= 0, weights.clip(0), 0.0))


def _script_shares(ordinary: pa.Table, found: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return for each token the logarithm of the share of its scripts' tokens that occur; never infinite."""
    groups = ordinary["scripts"].combine_chunks().dictionary_encode().indices.to_numpy()
    occurring = np.bincount(groups, found > 0)
    return np.asarray(np.log((occurring + 0.5) / (np.bincount(groups) + 1))[groups])


def _reasons(
    ordinary: pa.Table, expected: NDArray[np.float64], found: NDArray[np.float64]
) -> NDArray[np.str_]:
    rare = (found > 0) & (found * _RARE < expected)
    reachable, utf8 = (np.array(ordinary[name].to_pylist(), np.bool_) for name in ("reachable", "is_utf8"))
    several = _numbers(ordinary["num_bytes"]) > 1
    absent, wanted = found == 0, expected >= 1
    return np.select(
        [~reachable & several, absent & ~utf8 & several, absent & wanted, rare],
        ["unreachable", "fragment", "never_seen", "rare"],
        "",
    )


def _numbers(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """Return a column as numbers; -1 for NULL."""
    return np.asarray(pc.fill_null(pc.cast(column, pa.int64()), -1).to_numpy())


def _sources(by_source: Mapping[str, NDArray[np.uint64]], order: NDArray[np.int64]) -> list[str | None]:
    """Return the source that gave most of each token's training occurrences; the first of equal ones."""
    if not by_source:
        return [None] * len(order)
    names = list(by_source)
    amounts = np.stack([by_source[name][order] for name in names])
    most = amounts.argmax(axis=0).tolist()
    return [names[place] if amounts[place, k] else None for k, place in enumerate(most)]


def _examples(tokens: list[bytes], counts: Iterable[PretokenCounts] | None) -> list[str | None]:
    """Return for the first tokens the most frequent pre-token of all sources that holds each."""
    wanted, found = tokens[:_NUM_EXAMPLES], dict[bytes, str | None]()
    if counts is not None and wanted:
        for part in PretokenCounts.most_frequent_first(counts):
            text = part.data.tobytes()
            found |= {one: _first_with(one, text, part.offsets) for one in wanted if found.get(one) is None}
            if None not in found.values():
                break
    return [found.get(token) for token in wanted] + [None] * (len(tokens) - len(wanted))


def _first_with(token: bytes, text: bytes, offsets: NDArray[np.int64]) -> str | None:
    """Return the first of some strings, one after the other in a text, that holds a token."""
    at = text.find(token)
    while at >= 0:
        k = int(np.searchsorted(offsets, at, side="right")) - 1
        start, end = offsets[k : k + 2].tolist()
        if at + len(token) <= end:
            return text[start:end].decode("utf-8", "backslashreplace")
        at = text.find(token, at + 1)
    return None
