"""Fill in the middle on tokens: rearrange some documents so that a model learns to fill gaps.

The text of a piece, x, is cut at two places a ≤ b into prefix, middle and suffix, and becomes

    1  PSM    PREFIX x[:a] SUFFIX x[b:] MIDDLE x[a:b]
    2  SPM    PREFIX SUFFIX x[b:] MIDDLE x[:a] x[a:b]

three tokens longer. The tokens that begin and end a document keep their places. Each piece of a long
document is rearranged separately, so that the end of a sequence never cuts an example. No text is lost.

The choice of documents, forms and cuts depends on the seed, the document and its epoch, but not on the
document's place in the mixture or on the packing. The hash is the finalizer of SplitMix64 (Steele et al.
2014), chained over its inputs.

Source: Bavarian et al. 2022, "Efficient Training of Language Models to Fill in the Middle"; SPM as its
variant 2.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FIM_TOKENS = 3
"""Number of tokens that rearranging adds to a piece."""

PSM, SPM = 1, 2
NAMES = {PSM: "psm", SPM: "spm"}

_CHOICE, _FORM, _FIRST_CUT, _SECOND_CUT = range(4)
_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


@dataclass(frozen=True)
class DocumentKeys:
    """The keys that identify each draw of a document; arrays of the same length.

    Attributes:
        source: index of the source.
        shard: index of the shard in the source.
        document: position in the shard.
        epoch: number of the pass through the source.
    """

    source: NDArray[np.uint16]
    shard: NDArray[np.uint32]
    document: NDArray[np.uint32]
    epoch: NDArray[np.uint16]


def choose_forms(
    keys: DocumentKeys, rates: NDArray[np.float64], spm_rate: float, seed: int
) -> NDArray[np.uint8]:
    """Choose the form of each document: 0 (not rearranged), `PSM` or `SPM`.

    Args:
        keys: keys of d documents.
        rates: float64 [number of sources], fraction of each source's documents to rearrange, in [0, 1].
        spm_rate: fraction of these that becomes SPM, in [0, 1].
        seed: decides the result, together with the keys.

    Returns:
        uint8 [d].
    """
    chosen = _fraction(_hash(keys, seed, _CHOICE)) < rates[keys.source]
    spm = _fraction(_hash(keys, seed, _FORM)) < spm_rate
    return np.where(chosen, np.where(spm, SPM, PSM), 0).astype(np.uint8)


def choose_cuts(
    keys: DocumentKeys, document_start: NDArray[np.uint32], lengths: NDArray[np.int64], seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Choose where the text of each piece is cut: a ≤ b, both uniform in [0, length].

    Args:
        keys: keys of the documents of p pieces.
        document_start: uint32 [p], token of the document at which each piece starts.
        lengths: int64 [p], tokens of text in each piece.
        seed: decides the result, together with the keys.

    Returns:
        int64 [p] and int64 [p].
    """
    places = (lengths + 1).astype(np.uint64)
    first, second = (
        (_mix(_hash(keys, seed, purpose) ^ document_start.astype(np.uint64)) % places).astype(np.int64)
        for purpose in (_FIRST_CUT, _SECOND_CUT)
    )
    return np.minimum(first, second), np.maximum(first, second)


def _hash(keys: DocumentKeys, seed: int, purpose: int) -> NDArray[np.uint64]:
    value = np.full(len(keys.source), (seed * 4 + purpose + 1) * _GOLDEN & _MASK, dtype=np.uint64)
    for column in (keys.source, keys.shard, keys.document, keys.epoch):
        value = _mix(value ^ column.astype(np.uint64))
    return value


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's next state and its finalizer; 64-bit numbers that wrap."""
    value = value + np.uint64(_GOLDEN)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def _fraction(value: NDArray[np.uint64]) -> NDArray[np.float64]:
    """The upper 53 bits as a number in [0, 1)."""
    return (value >> np.uint64(11)).astype(np.float64) * 2.0**-53
