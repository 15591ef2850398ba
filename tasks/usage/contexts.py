"""Suspects in running text: the first place in what was encoded where each occurs, with the text around it.

A token that does not occur is shown by the pre-token of the training text that holds it most often: the text
is there, and other tokens took it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.core.context import report_progress
from tokmill.tasks.core.markdown import on_one_line
from tokmill.tasks.formats.encoded import EncodedShard

if TYPE_CHECKING:
    from tokmill.tokenizer import Tokenizer

MOST = 200
"""So many of the first suspects get a context."""
MARKS = ("⟦", "⟧")
"""What stands around the token, or the pre-token that holds it."""
_AROUND = 12
"""Tokens on either side."""
_CUT_BEFORE = re.compile(r"^(\\x[89ab][0-9a-f])+")
_CUT_BEHIND = re.compile(r"(\\x[c-f][0-9a-f])?(\\x[89ab][0-9a-f])*$")
"""Parts of characters where the text around a token was cut."""
_TOO_LONG = 64
"""A pre-token of more tokens is not looked for."""


def sequences_of(
    tokenizer: "Tokenizer", suspects: Iterable[tuple[int, int, str | None]]
) -> dict[int, Sequence[int]]:
    """Return the ids that stand for each suspect in text: its own, or those of its example."""
    sequences: dict[int, Sequence[int]] = {}
    for token, occurrences, example in suspects:
        if occurrences:
            sequences[token] = [token]
        elif example:
            ids = tokenizer.encode_pretoken(example.encode())
            if 0 < len(ids) <= _TOO_LONG:
                sequences[token] = ids
    return sequences


def find_contexts(
    tokenizer: "Tokenizer", sequences: Mapping[int, Sequence[int]], shards: Sequence[Path]
) -> dict[int, str]:
    """Return where each sequence occurs first, the same for any number of workers."""
    left, found = dict(sequences), dict[int, str]()
    for number, path in enumerate(shards):
        if not left:
            break
        report_progress(number, len(shards), "shards")
        shard = EncodedShard.open(path)
        here = {token: ids for token, ids in left.items() if all(shard.token_counts[one] for one in ids)}
        if here:
            shard.check_ids(tokenizer.vocab_size, shard.tokens)
            found |= _found_in(tokenizer, shard, here)
            left = {token: ids for token, ids in left.items() if token not in found}
    return found


def _found_in(
    tokenizer: "Tokenizer", shard: EncodedShard, sequences: Mapping[int, Sequence[int]]
) -> dict[int, str]:
    """Look for the rarest id of each sequence, then for the rest of it around that."""
    rarest = {
        token: min(range(len(ids)), key=lambda k: int(shard.token_counts[ids[k]]))
        for token, ids in sequences.items()
    }
    wanted: NDArray[np.bool_] = np.zeros(len(shard.token_counts), np.bool_)
    wanted[[ids[rarest[token]] for token, ids in sequences.items()]] = True
    places = np.flatnonzero(wanted[shard.tokens])
    there = shard.tokens[places]
    found = {}
    for token, ids in sequences.items():
        starts = places[there == ids[rarest[token]]] - rarest[token]
        first = _first(shard, starts, np.asarray(ids, shard.tokens.dtype))
        if first is not None:
            found[token] = _context(tokenizer, shard, first, len(ids))
    return found


def _first(shard: EncodedShard, starts: NDArray[np.int64], ids: NDArray[np.integer]) -> int | None:
    """Return the first of some places where a sequence stands within one document."""
    starts = starts[(starts >= 0) & (starts + len(ids) <= len(shard.tokens))]
    for k, one in enumerate(ids):
        starts = starts[shard.tokens[starts + k] == one]
    ends = shard.offsets[np.searchsorted(shard.offsets, starts, side="right")]
    starts = starts[starts + len(ids) <= ends]
    return int(starts[0]) if len(starts) else None


def _context(tokenizer: "Tokenizer", shard: EncodedShard, first: int, number: int) -> str:
    """Return some tokens between marks, and the text around them in their document, as one line."""
    document = int(np.searchsorted(shard.offsets, first, side="right")) - 1
    begin, end = int(shard.offsets[document]), int(shard.offsets[document + 1])
    after = first + number
    parts = (
        shard.tokens[max(begin, first - _AROUND) : first],
        shard.tokens[first:after],
        shard.tokens[after : min(end, after + _AROUND)],
    )
    before, shown, behind = (tokenizer.decode(part, "backslashreplace") for part in parts)
    before, behind = _CUT_BEFORE.sub("", before), _CUT_BEHIND.sub("", behind)
    return on_one_line(f"{before}{MARKS[0]}{shown}{MARKS[1]}{behind}").strip()
