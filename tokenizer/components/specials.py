"""Tokens that are cut out of a text: special tokens, and added tokens.

Each call decides how the text of a special token is treated, as in tiktoken: *allowed* ones become their id,
those taken *as text* are encoded, and all others are errors, the default. *Added* tokens are always found.
The leftmost is taken, and the longest there. White space beside a token may belong to it, and is left out
first. Law: added tokens are found as by Hugging Face's tokenizers, where a special token that is encoded as
text hides the tokens in its text, and tokens of `normalized` text are looked for last.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.components.normalizer_steps import WHITE_SPACE
from tokmill.tokenizer.core.errors import SpecialTokenError, VocabularyError
from tokmill.tokenizer.kernels.tries import Trie, find_specials

AllowedSpecial = Literal["all"] | Collection[str]
AsText = bool | Collection[str]


@dataclass(frozen=True, slots=True)
class Segments:
    """A batch of documents, cut at its special tokens.

    Attributes:
        bounds: int64, shape (num_segments + 1,); segment s is `data[bounds[s]:bounds[s + 1]]`.
        kinds: int64, shape (num_segments,); the id of a special token, or -1 for text.
        documents: int64, shape (num_documents + 1,); document d has the segments `documents[d]:documents[d
            + 1]`.
    """

    bounds: NDArray[np.int64]
    kinds: NDArray[np.int64]
    documents: NDArray[np.int64]

    @property
    def first(self) -> NDArray[np.bool_]:
        """Whether a document begins with a segment, shape (num_segments,)."""
        begins = np.zeros(self.kinds.shape[0] + 1, np.bool_)
        begins[self.documents] = True
        return begins[:-1]


def check_names(names: Iterable[str], where: str) -> list[str]:
    """Return special tokens as a list."""
    if isinstance(names, str):
        raise SpecialTokenError(f"{where}={names!r} must be a list of texts; use [{names!r}]")
    checked: dict[str, None] = {}
    for name in names:
        if not isinstance(name, str) or len(name.encode("utf-8", "replace")) < 2:
            raise SpecialTokenError(
                f"{where}: {name!r} must be a text of two bytes or more, because single bytes are ordinary "
                "tokens; use e.g. '<|endoftext|>'"
            )
        if name in checked:
            raise SpecialTokenError(f"{where}: {name!r} is named twice; leave one out")
        checked[name] = None
    return list(checked)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The tokens to look for in documents.

    Attributes:
        tokens: ids by text, looked for in the text as it is.
        normalized: ids by text, looked for in the rest once it is normalized.
        refused: names by id of the special tokens that a document must not contain.
        hiding: ids of the special tokens that are encoded as text, and hide other tokens in theirs.
    """

    tokens: Mapping[str, int]
    normalized: Mapping[str, int] = field(default_factory=dict)
    refused: Mapping[int, str] = field(default_factory=dict)
    hiding: frozenset[int] = frozenset()


def wanted_specials(specials: Mapping[str, int], allowed_special: AllowedSpecial, as_text: AsText) -> Wanted:
    """Decide which special tokens to look for, and which of them are errors."""
    allowed = (
        set(specials) if allowed_special == "all" else _known(specials, allowed_special, "allowed_special")
    )
    if isinstance(as_text, bool):
        text = set(specials) - allowed if as_text else set()
    else:
        text = _known(specials, as_text, "as_text")
    both = sorted(allowed & text)
    if both:
        raise SpecialTokenError(
            f"encode: {both[0]!r} is both in allowed_special and in as_text; leave one out"
        )
    found = {name: token for name, token in specials.items() if name not in text}
    refused = {token: name for name, token in found.items() if name not in allowed}
    return Wanted(found, refused=refused)


def _known(specials: Mapping[str, int], names: str | Collection[str], where: str) -> set[str]:
    wanted = {names} if isinstance(names, str) else set(names)
    unknown = sorted(wanted.difference(specials))
    if unknown:
        has = ", ".join(list(specials)[:8]) or "none"
        raise SpecialTokenError(
            f"encode: {where} names {unknown[0]!r}, which is not a special token of this vocabulary; "
            f"it has {has}"
        )
    return wanted


def whole(offsets: NDArray[np.int64]) -> Segments:
    """Return documents that are not cut yet."""
    number = offsets.shape[0] - 1
    return Segments(offsets, np.full(number, -1, np.int64), np.arange(number + 1, dtype=np.int64))


def cut(
    data: NDArray[np.uint8],
    segments: Segments,
    tokens: Mapping[str, int],
    refused: Mapping[int, str] = MappingProxyType({}),
    hiding: Collection[int] = (),
) -> Segments:
    """Cut the text segments of documents into text and tokens."""
    bounds, kinds = segments.bounds, segments.kinds
    starts, ends, ids = find(data, bounds, tokens, hiding)
    if ids.shape[0] and (kinds >= 0).any():
        free = kinds[np.searchsorted(bounds, starts, side="right") - 1] < 0
        starts, ends, ids = starts[free], ends[free], ids[free]
    if not ids.shape[0]:
        return segments
    refuse(bounds[segments.documents], (starts, ids), refused)
    cuts = np.unique(np.concatenate([bounds, starts, ends]))
    found, before = np.full(cuts.shape[0] - 1, -1, np.int64), kinds >= 0
    found[np.searchsorted(cuts, bounds[:-1][before])] = kinds[before]
    found[np.searchsorted(cuts, starts)] = ids
    return Segments(cuts, found, np.searchsorted(cuts, bounds[segments.documents]).astype(np.int64))


MAX_ENTRIES = 1 << 26  # of the table of beginnings; 100,000 reserved tokens need a tenth of it
CHUNK_BYTES = 1 << 18
"""Bytes of text to process at a time; with more, the intermediate results no longer fit the CPU's caches."""


def chunks(bounds: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Divide segments into runs of about CHUNK_BYTES, at least one segment each."""
    first, last = 0, bounds.shape[0] - 1
    while first < last:
        after = int(np.searchsorted(bounds, bounds[first] + CHUNK_BYTES, side="right")) - 1
        after = min(max(after, first + 1), last)
        yield first, after
        first = after


def find(
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    tokens: Mapping[str, int],
    hiding: Collection[int] = (),
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Find tokens in documents: where each starts and ends, and its id, in order."""
    if not tokens or not data.shape[0]:
        return tuple(np.zeros(0, np.int64) for _ in range(3))  # type: ignore[return-value]
    trie = make_trie(tuple(tokens.items()))
    capacity = 64
    while True:
        found = np.empty((3, capacity), np.int64)
        number = find_specials(data, offsets, trie, found[0], found[1], found[2])
        if number <= capacity:
            found = found[:, :number]
            found = found[:, ~np.isin(found[2], [*hiding])] if hiding and number else found
            return found[0], found[1], found[2]
        capacity = number


@lru_cache(maxsize=32)
def make_trie(specials: tuple[tuple[str, int], ...]) -> Trie:
    """Lay special tokens, each a name and an id, out for the kernels."""
    classes = np.zeros(256, np.uint8)
    letters = sorted({byte for name, _ in specials for byte in name.encode()})
    classes[letters] = np.arange(1, len(letters) + 1)
    nodes: list[dict[int, int]] = [{}]
    ids = [-1]
    for name, token in specials:
        node = 0
        for byte in name.encode():
            if byte not in nodes[node]:
                nodes[node][byte] = len(nodes)
                nodes.append({})
                ids.append(-1)
            node = nodes[node][byte]
        ids[node] = token
        if len(nodes) * (len(letters) + 1) > MAX_ENTRIES:
            raise SpecialTokenError(
                f"special tokens: {len(specials)} names of {len(letters)} different bytes have too many "
                "different beginnings to look for; use fewer or shorter names"
            )
    children = np.zeros((len(nodes), len(letters) + 1), np.int32)
    for node, following in enumerate(nodes):
        for byte, child in following.items():
            children[node, classes[byte]] = child
    firsts = np.array(sorted(nodes[0]), np.uint64) * np.uint64(0x0101010101010101)
    return Trie(classes, children, np.array(ids, np.int32), firsts)


def refuse(
    offsets: NDArray[np.int64],
    found: tuple[NDArray[np.int64], NDArray[np.int64]],
    refused: Mapping[int, str],
    before: int = 0,
) -> None:
    """Reject special tokens that were found."""
    if not refused:
        return
    for start, token in zip(*(part.tolist() for part in found), strict=True):
        if token in refused:
            name, document = refused[token], int(np.searchsorted(offsets, start, side="right")) - 1
            byte = start - int(offsets[document]) + before * (document == 0)
            raise SpecialTokenError(
                f"encode: document {document} holds the special token {name!r} at byte {byte}; pass "
                f"allowed_special={{{name!r}}} to encode it as its id, or as_text=True to encode it as text"
            )


Side: TypeAlias = Literal["left", "right", "both"]


def check_sides(sides: Mapping[str, Side], tokens: Mapping[str, int]) -> None:
    """Check which tokens take white space, and on which sides."""
    for name, side in sides.items():
        if name not in tokens or side not in get_args(Side):
            raise VocabularyError(
                f"vocabulary: absorbing[{name!r:.80}]={side!r:.80} must name a special or added "
                "token, and 'left', 'right' or 'both'"
            )


def absorb(
    data: NDArray[np.uint8], segments: Segments, sides: Mapping[int, Side]
) -> tuple[NDArray[np.uint8], Segments]:
    """Leave out the white space that tokens take; segments may become empty."""
    kinds, bounds = segments.kinds, segments.bounds
    taking = np.flatnonzero(np.isin(kinds, [*sides])).tolist() if sides else []
    if not taking:
        return data, segments
    stays, first = np.ones(data.shape[0], np.bool_), segments.first
    for i in taking:
        side = sides[int(kinds[i])]
        if side != "right" and not first[i] and kinds[i - 1] < 0:
            begin, end = int(bounds[i - 1]), int(bounds[i])
            stays[end - _size(data[begin:end], right=True) : end] = False
        if side != "left" and i + 1 < kinds.shape[0] and not first[i + 1] and kinds[i + 1] < 0:
            begin, end = int(bounds[i + 1]), int(bounds[i + 2])
            stays[begin : begin + _size(data[begin:end], right=False)] = False
    left = np.concatenate([np.zeros(1, np.int64), np.cumsum(stays)])
    return data[stays], Segments(left[bounds], kinds, segments.documents)


def _size(data: NDArray[np.uint8], *, right: bool) -> int:
    """Return how many bytes of white space a text ends with, or begins with."""
    text = data.tobytes().decode("utf-8", "surrogateescape")
    stripped = text.rstrip(WHITE_SPACE) if right else text.lstrip(WHITE_SPACE)
    return len(data) - len(stripped.encode("utf-8", "surrogateescape"))
