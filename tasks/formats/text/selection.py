"""Which documents of a shard belong to a part of the corpus: decided by each document's content.

A document's draw is a hash of its bytes and a seed, evenly distributed over the 64-bit numbers. Documents
whose draw is below a limit are held out for validation; so are those with listed draws, which a smaller
limit of another source would keep, so that no text is on both sides. The rest is for training.
"""

from hashlib import blake2b
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from tokmill.tasks.formats.text.documents import DocumentBatch, Ints, offsets_of
from tokmill.tasks.formats.text.sharding import document_hashes
from tokmill.tasks.kernels.tokens import gather

CorpusPart: TypeAlias = Literal["training", "validation"]

_GOLDEN = np.uint64(0x9E37_79B9_7F4A_7C15)
_FIRST = np.uint64(0xBF58_476D_1CE4_E5B9)
_SECOND = np.uint64(0x94D0_49BB_1331_11EB)


class Selection(BaseModel):
    """The rule by which documents of a shard are selected.

    Attributes:
        of: digest of the shard with all its documents.
        part: the part that is selected.
        seed: seed of the draws.
        below: documents with smaller draws are held out; at most 2**64.
        also: draws of further documents that are held out, ascending.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    of: str
    part: CorpusPart
    seed: int
    below: int
    also: tuple[int, ...] = ()

    def select(self, batch: DocumentBatch) -> DocumentBatch:
        """Return the documents of a batch that belong to the part, in their order."""
        draws = draws_of(document_hashes(batch.data, batch.offsets), self.seed)
        held_out = is_held_out(draws, self.below, np.array(self.also, dtype=np.uint64))
        return _kept(batch, held_out if self.part == "validation" else ~held_out)


def draws_of(hashes: NDArray[np.uint64], seed: int) -> NDArray[np.uint64]:
    """Return uint64[n], the documents' draws, from hashes of their content."""
    return _mixed(hashes ^ _mixed(np.array([seed], dtype=np.uint64)))


def is_held_out(draws: NDArray[np.uint64], below: int, also: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Return bool[n]: whether documents with these draws are held out."""
    first = draws < np.uint64(below) if below < 1 << 64 else np.ones(len(draws), dtype=np.bool_)
    return first | np.isin(draws, also) if len(also) else first


def selected_digest(of: str, part: CorpusPart, held_out: Ints) -> str:
    """Return the digest of a part of a shard, from the shard's digest and the ordinals held out."""
    ordinals = np.ascontiguousarray(held_out, dtype="<i8").tobytes()
    content = b"\n".join([of.encode(), part.encode(), ordinals])
    return blake2b(content, digest_size=32, person=b"tokmill part").hexdigest()


def _kept(batch: DocumentBatch, keep: NDArray[np.bool_]) -> DocumentBatch:
    if keep.all():
        return batch
    lengths = np.diff(batch.offsets)[keep]
    offsets = offsets_of(lengths)
    data = np.empty(offsets[-1], dtype=np.uint8)
    gather(np.ascontiguousarray(batch.data), batch.offsets[:-1][keep], lengths, offsets[:-1], data)
    ids = None if batch.ids is None else batch.ids.filter(pa.array(keep))
    return DocumentBatch(data, offsets, batch.ordinals[keep], ids)


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64 (Steele et al. 2014); products wrap."""
    values = values + _GOLDEN
    values = (values ^ (values >> np.uint64(30))) * _FIRST
    values = (values ^ (values >> np.uint64(27))) * _SECOND
    return values ^ (values >> np.uint64(31))
