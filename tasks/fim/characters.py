"""Fill in the middle on characters: cut a document's text before it is encoded.

Packing cuts between tokens (`tasks.fim.tokens`, which describes the forms and names the paper). Here a text
is cut between any two characters, so that a model also learns gaps that begin and end within words. Prefix,
middle and suffix are encoded separately, each after its special token, in the order of the form.

The choice of documents, forms and cuts depends on the seed, the shard's text and the document's ordinal, but
not on how documents are divided into batches.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.fim.tokens import FIM_TOKENS, SPM, DocumentKeys, choose_cuts, choose_forms
from tokmill.tasks.formats.text.documents import DocumentBatch, offsets_of
from tokmill.tasks.kernels.documents import gather
from tokmill.tokenizer.core.buffers import EncodedBatch
from tokmill.tokenizer.core.errors import LawError

SHORTEST_CHARS = 16
"""Texts of fewer characters are never rearranged: there is too little to fill in."""

Encode = Callable[[NDArray[np.uint8], NDArray[np.int64]], EncodedBatch]


@dataclass(frozen=True)
class TextFim:
    """How texts are rearranged.

    Attributes:
        rate: fraction of the documents to rearrange, in [0, 1].
        spm_rate: fraction of these with the suffix first.
        token_ids: ids of the tokens before prefix, suffix and middle.
        seed: together with the shard, decides the documents, forms and cuts.
    """

    rate: float
    spm_rate: float
    token_ids: tuple[int, int, int]
    seed: int


def encode_rearranged(
    encode: Encode, batch: DocumentBatch, fim: TextFim
) -> tuple[EncodedBatch, NDArray[np.int64]]:
    """Encode a batch and rearrange some of its documents.

    Args:
        encode: encodes the documents of a buffer.
        batch: the documents.
        fim: how documents are chosen and rearranged.

    Returns:
        The documents' tokens, and int64 [n], how many of each document's tokens were added.

    Raises:
        LawError: as `encode` raises it, but with the number of the document instead of the part.
    """
    forms, cuts = _chosen(batch, fim)
    chosen = np.flatnonzero(forms)
    num_parts = np.where(forms > 0, 3, 1)
    first = offsets_of(num_parts)
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
    ids = np.empty(offsets[-1], dtype=encoded.ids.dtype)
    places, token_places = _places(encoded.offsets, first, offsets, forms, chosen)
    ids[token_places] = np.repeat(np.array(fim.token_ids, dtype=ids.dtype), len(chosen))
    _copy(encoded, places, ids)
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


def _places(
    parts: NDArray[np.int64],
    first: NDArray[np.int64],
    offsets: NDArray[np.int64],
    forms: NDArray[np.uint8],
    chosen: NDArray[np.intp],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions of each part's tokens, int64 [parts], and of the added tokens, int64 [3 × chosen]."""
    places = np.repeat(offsets[:-1], np.diff(first))
    lengths = np.diff(parts)
    prefix, suffix = lengths[first[chosen]], lengths[first[chosen] + 2]
    begin, spm = offsets[chosen], forms[chosen] == SPM
    suffix_place = np.where(spm, begin + 2, begin + 2 + prefix)
    prefix_place = np.where(spm, begin + 3 + suffix, begin + 1)
    middle_place = np.where(spm, prefix_place + prefix, begin + 3 + prefix + suffix)
    for k, place in enumerate((prefix_place, middle_place, suffix_place)):
        places[first[chosen] + k] = place
    middle_token = np.where(spm, prefix_place, middle_place) - 1
    return places, np.concatenate([begin, suffix_place - 1, middle_token])


def _copy(encoded: EncodedBatch, places: NDArray[np.int64], ids: NDArray[Any]) -> None:
    width = ids.itemsize
    starts, lengths = encoded.offsets[:-1], np.diff(encoded.offsets)
    gather(encoded.ids.view(np.uint8), starts * width, lengths * width, places * width, ids.view(np.uint8))
