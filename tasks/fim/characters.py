"""Fill in the middle on characters: cut a document's text before it is encoded.

Packing cuts between tokens (`tasks.fim.tokens`, which has the forms). Here a text is cut between any two
characters, so that a model also learns gaps that begin and end within words; prefix, middle and suffix are
encoded separately. What is chosen depends on the seed, the shard's text and the document's ordinal, not on
batches.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.fim.tokens import FIM_TOKENS, DocumentKeys, choose_cuts, choose_forms, form_places
from tokmill.tasks.formats.text.documents import DocumentBatch, offsets_of
from tokmill.tasks.kernels.documents import gather
from tokmill.tokenizer.core.buffers import EncodedBatch
from tokmill.tokenizer.core.errors import LawError

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
