"""What became of every source's documents and tokens when they were packed.

Tokens: in = packed + truncated + dropped. A document counts under one end only:

    packed                  whole, in one sequence
    split                   whole, over several sequences
    truncated               in part; the rest of it is lost
    dropped:too_long        longer than a sequence, where long documents are dropped
    dropped:last_sequence   all of it stood in the last, partial sequence, which was dropped

A document that the mixture repeats counts each time. What comes in is what the mixture says that it gives,
not what was found here, so that a document that is lost or packed twice shows. Padding belongs to no source:
it is an account of its own, under the source `NO_SOURCE`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.formats.mixture import MixedSource
from tasks.packing.pieces import Pieces
from tasks.stage import NO_SOURCE, Account


@dataclass(frozen=True)
class Ending:
    """What became of each document.

    Attributes:
        kept: int64 [d], its tokens that are in a sequence.
        lost: int64 [d], its tokens that are in none.
        ends: which documents, bool [d], came to each end.
    """

    kept: NDArray[np.int64]
    lost: NDArray[np.int64]
    ends: dict[str, NDArray[np.bool_]]


def ending(lengths: NDArray[np.int64], pieces: Pieces, sequence_length: int, drops_long: bool) -> Ending:
    """Compare documents of these `lengths`, int64 [d], with the `pieces` that were kept of them.

    `drops_long` says that a document of more than `sequence_length` tokens is dropped whole.
    """
    kept = np.bincount(pieces.document, weights=pieces.length, minlength=len(lengths)).astype(np.int64)
    num_pieces = np.bincount(pieces.document, minlength=len(lengths))
    too_long = (lengths > sequence_length) & drops_long
    ends = {
        "packed": (kept == lengths) & (num_pieces == 1),
        "split": (kept == lengths) & (num_pieces > 1),
        "truncated": (kept > 0) & (kept < lengths),
        "dropped:too_long": (kept == 0) & too_long,
        "dropped:last_sequence": (kept == 0) & ~too_long,
    }
    return Ending(kept, lengths - kept, ends)


def packing_accounts(
    sources: Sequence[MixedSource], source: NDArray[np.uint16], ended: Ending, num_padding: int
) -> list[Account]:
    """Two accounts a source, of documents and of tokens, and one of the padding.

    Args:
        sources: what the mixture says that each source gives.
        source: uint16 [d], index of each document's source.
        ended: what became of each document.
        num_padding: tokens that fill the sequences up.
    """
    accounts = []
    for index, mixed in enumerate(sources):
        mine = source == index
        documents = {end: int((mine & chosen).sum()) for end, chosen in ended.ends.items()}
        tokens = {"packed": int(ended.kept[mine].sum())} | {
            end: int(ended.lost[mine & chosen].sum())
            for end, chosen in ended.ends.items()
            if end not in {"packed", "split"}
        }
        accounts += [
            Account(source=mixed.source, unit="documents", num_in=mixed.drawn_documents, became=documents),
            Account(source=mixed.source, unit="tokens", num_in=mixed.drawn_tokens, became=tokens),
        ]
    padding = {"padding": num_padding}
    return [*accounts, Account(source=NO_SOURCE, unit="tokens", num_in=0, added=padding, became=padding)]
