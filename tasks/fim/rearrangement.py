"""Fill in the middle: rearrange some documents so that a model learns to fill gaps.

The text of a piece, x, is cut at two places a ≤ b into prefix, middle and suffix, and becomes

    1  PSM    PREFIX x[:a] SUFFIX x[b:] MIDDLE x[a:b]
    2  SPM    PREFIX SUFFIX x[b:] MIDDLE x[:a] x[a:b]

three tokens longer (Bavarian et al. 2022; SPM is its variant 2). Packing cuts between tokens, encoding
between characters. What is chosen depends on the seed, the document (its ordinal) and its epoch.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.formats.text.documents import DocumentBatch, offsets_of
from tokmill.tasks.kernels.documents import gather, mixed
from tokmill.tokenizer.core.buffers import EncodedBatch
from tokmill.tokenizer.core.errors import LawError

FIM_TOKENS = 3
"""Number of tokens that rearranging adds to a piece."""

PSM, SPM = 1, 2
NAMES = {PSM: "psm", SPM: "spm"}

_CHOICE, _FORM, _FIRST_CUT, _SECOND_CUT = range(4)
_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


@dataclass(frozen=True)
class DocumentKeys:
    """The keys that identify each draw of a document; arrays of the same length."""

    source: NDArray[np.uint16]  # index of the source
    shard: NDArray[np.uint32]  # index of the shard in the source
    document: NDArray[np.uint32]  # position in the shard
    epoch: NDArray[np.uint16]  # number of the pass through the source


def choose_forms(
    keys: DocumentKeys, rates: NDArray[np.float64], spm_rate: float, seed: int
) -> NDArray[np.uint8]:
    """The form of each document, uint8 [d]: 0 (not rearranged), `PSM` or `SPM`.

    `rates` [number of sources] are the fractions of the sources' documents to rearrange.
    """
    chosen = _fraction(_hash(keys, seed, _CHOICE)) < rates[keys.source]
    spm = _fraction(_hash(keys, seed, _FORM)) < spm_rate
    return np.where(chosen, np.where(spm, SPM, PSM), 0).astype(np.uint8)


def choose_cuts(
    keys: DocumentKeys, document_start: NDArray[np.uint32], lengths: NDArray[np.int64], seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where the text of each piece is cut, int64 [p] each: a ≤ b, both uniform in [0, length].

    `keys` are those of the pieces' documents, in which they start at the tokens `document_start`.
    """
    places = (lengths + 1).astype(np.uint64)
    first, second = (
        (mixed(_hash(keys, seed, purpose) ^ document_start.astype(np.uint64)) % places).astype(np.int64)
        for purpose in (_FIRST_CUT, _SECOND_CUT)
    )
    return np.minimum(first, second), np.maximum(first, second)


def _hash(keys: DocumentKeys, seed: int, purpose: int) -> NDArray[np.uint64]:
    value = np.full(len(keys.source), (seed * 4 + purpose + 1) * _GOLDEN & _MASK, dtype=np.uint64)
    for column in (keys.source, keys.shard, keys.document, keys.epoch):
        value = mixed(value ^ column.astype(np.uint64))
    return value


def _fraction(value: NDArray[np.uint64]) -> NDArray[np.float64]:
    """The upper 53 bits as a number in [0, 1)."""
    return (value >> np.uint64(11)).astype(np.float64) * 2.0**-53


def form_places(
    forms: NDArray[np.uint8],
    place: NDArray[np.int64],
    prefix: NDArray[np.int64],
    suffix: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Where pieces that begin at `place`, with so many tokens before and after the cuts, have their parts.

    Returns the places of prefix, suffix and middle, and of the token before the middle; the prefix's token is
    at `place`, the suffix's right before the suffix.
    """
    spm = forms == SPM
    prefix_place = np.where(spm, place + 3 + suffix, place + 1)
    suffix_place = np.where(spm, place + 2, place + 2 + prefix)
    middle_place = np.where(spm, prefix_place + prefix, place + 3 + prefix + suffix)
    return prefix_place, suffix_place, middle_place, np.where(spm, prefix_place, middle_place) - 1


SHORTEST_CHARS = 16
"""Texts of fewer characters are never rearranged: there is too little to fill in."""

Encode = Callable[[NDArray[np.uint8], NDArray[np.int64]], EncodedBatch]


@dataclass(frozen=True)
class TextFim:
    """How texts are rearranged."""

    rate: float  # fraction of the documents to rearrange, in [0, 1]
    spm_rate: float  # fraction of these with the suffix first
    token_ids: tuple[int, int, int]  # of the tokens before prefix, suffix and middle
    seed: int  # together with the shard, decides the documents, forms and cuts


def encode_rearranged(
    encode: Encode, batch: DocumentBatch, fim: TextFim
) -> tuple[EncodedBatch, NDArray[np.int64]]:
    """Encode a batch and rearrange some of its documents.

    Returns the documents' tokens, and int64 [n], how many of each document's tokens were added. A LawError of
    `encode` has the number of the document instead of the part.
    """
    forms, cuts = _chosen(batch, fim)
    chosen = np.flatnonzero(forms)
    first = offsets_of(np.where(forms > 0, 3, 1))  # part of each document
    bounds = np.empty(first[-1] + 1, dtype=np.int64)
    bounds[first] = batch.offsets
    bounds[first[chosen] + 1], bounds[first[chosen] + 2] = cuts
    try:
        encoded = encode(batch.data, bounds)
    except LawError as error:  # it has the number of a part
        error.document = int(np.searchsorted(first, error.document, side="right")) - 1
        raise
    added = FIM_TOKENS * (forms > 0).astype(np.int64)
    offsets = offsets_of(np.diff(encoded.offsets[first]) + added)
    places, lengths = np.repeat(offsets[:-1], np.diff(first)), np.diff(encoded.offsets)
    parts, begin = first[chosen], offsets[chosen]
    prefix, suffix, middle, middle_token = form_places(
        forms[chosen], begin, lengths[parts], lengths[parts + 2]
    )
    places[parts], places[parts + 1], places[parts + 2] = prefix, middle, suffix
    ids = np.empty(offsets[-1], dtype=encoded.ids.dtype)
    ids[begin], ids[suffix - 1], ids[middle_token] = fim.token_ids
    starts, width = encoded.offsets[:-1], ids.itemsize
    gather(encoded.ids.view(np.uint8), starts * width, lengths * width, places * width, ids.view(np.uint8))
    return EncodedBatch(ids, offsets), added


def _chosen(
    batch: DocumentBatch, fim: TextFim
) -> tuple[NDArray[np.uint8], tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """The form of each document, uint8 [n], and the two positions at which the rearranged ones are cut."""
    same = np.zeros(len(batch.ordinals), dtype=np.uint16)
    keys = DocumentKeys(same, batch.ordinals.astype(np.uint32), same.astype(np.uint32), same)
    forms = choose_forms(keys, np.array([fim.rate]), fim.spm_rate, fim.seed)
    # A character begins at every byte that is not a continuation byte.
    begins = np.flatnonzero((batch.data & 0xC0) != 0x80)
    firsts = np.searchsorted(begins, batch.offsets)
    num_chars = np.diff(firsts)
    forms[num_chars < SHORTEST_CHARS] = 0
    mine = np.flatnonzero(forms)
    picked = DocumentKeys(keys.source[mine], keys.shard[mine], keys.document[mine], keys.epoch[mine])
    cuts = choose_cuts(picked, np.zeros(len(mine), dtype=np.uint32), num_chars[mine], fim.seed)
    ends = np.append(begins, len(batch.data))
    first, second = (ends[firsts[mine] + cut] for cut in cuts)
    return forms, (first, second)
