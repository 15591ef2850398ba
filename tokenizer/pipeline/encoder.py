"""Encoders, and draws of segmentations, for every family that brings its kernels; and the law."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.core import buffers
from tokmill.tokenizer.core.buffers import EncodedBatch, Texts
from tokmill.tokenizer.core.errors import LawError, TokenizerError
from tokmill.tokenizer.core.stopping import SLICE_BYTES, raise_if_stopped
from tokmill.tokenizer.jit import Kernel
from tokmill.tokenizer.kernels.encoding import (
    DONE,
    NOWHERE,
    NUM_IDS,
    PAUSED,
    PRETOKEN,
    Memory,
    first_gap,
    first_gap_of_long_tokens,
    make_memory,
)
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.pipeline.model import Breach, Encoding, Law, SegmentedText
from tokmill.tokenizer.splitting import Pretokens
from tokmill.tokenizer.splitting.splitter import edges_of, words_of


class Accounting:
    """The law: the known tokens and the unknown text of a segment together have as many bytes as the segment.

    Ids are below `vocab_size`, and every id belongs to a segment. A special token is as long as its name, as
    it occurs in the text.
    """

    def __init__(self, token_offsets: NDArray[np.int64], unknown_id: int = -1) -> None:
        """Take the bounds of the tokens' bytes, int64 [vocab_size + 1], and the unknown token's id, or -1."""
        lengths = np.diff(token_offsets)
        if unknown_id >= 0:
            lengths[unknown_id] = 0  # its text is counted separately
        short = int(lengths.max(initial=0)) < 1 << 8
        self._lengths = lengths.astype(np.uint8 if short else np.int32)
        self._find = first_gap if short else first_gap_of_long_tokens

    def breach(
        self,
        ids: NDArray[np.uint32],
        ends: NDArray[np.int64],
        bounds: NDArray[np.int64],
        unknown_bytes: NDArray[np.int64] | None = None,
    ) -> Breach | None:
        """Find where an encoding breaks the law."""
        lost = np.zeros(ends.shape[0] - 1, np.int64) if unknown_bytes is None else unknown_bytes
        segment, vocab_size = self._find(ids, ends, bounds, lost, self._lengths), self._lengths.shape[0]
        if segment == lost.shape[0]:
            whole = ends[0] == 0 and ends[-1] == ids.shape[0]
            return None if whole else Breach(max(segment - 1, 0), "it has ids that belong nowhere")
        first, after = int(ends[segment]), int(ends[segment + 1])
        if not 0 <= first <= after <= ids.shape[0]:
            return Breach(segment, f"its ids go from {first} to {after} of {ids.shape[0]}")
        found = ids[first:after]
        wrong = found[found >= vocab_size]
        if wrong.shape[0]:
            return Breach(segment, f"it has the id {wrong[0]}, but ids are below {vocab_size}")
        return Breach(
            segment,
            f"its {found.shape[0]} tokens have {int(self._lengths[found].sum(dtype=np.int64))} bytes and its "
            f"unknown text {lost[segment]}, but its text has {bounds[segment + 1] - bounds[segment]}",
        )


USUAL_BYTES = 1 << 12
"""Bytes of the longest pre-token that a workspace has scratch for at first."""

KEPT_BYTES = 1 << 21
"""Scratch for longer pre-tokens is freed after use."""

MOST_BYTES = (1 << 31) - 3
"""Bytes of the longest pre-token, since positions have 32 bits."""

_BEHIND = 8  # ids that kernels write at a time, even if there are fewer
_USUAL_IDS = 1 << 19

Lent = TypeVar("Lent")


class LendsWorkspaces(Generic[Lent]):
    """Lends a workspace to each thread, whose cache is kept for the next one."""

    def __init__(self, make: Callable[[], Lent]) -> None:
        self._make, self._free = make, list[Lent]()

    @contextmanager
    def workspace(self) -> Iterator[Lent]:
        """Lend a workspace to one thread for the length of the block."""
        try:
            lent = self._free.pop()
        except IndexError:
            lent = self._make()
        try:
            yield lent
        finally:
            self._free.append(lent)


def refuse_longer(length: int, what: str = "encode") -> None:
    """Refuse a pre-token that is longer than positions can number."""
    if length > MOST_BYTES:
        raise TokenizerError(
            f"{what}: a pre-token has {length} bytes, but at most {MOST_BYTES} can be encoded; cut the "
            "document, or use a split pattern that does"
        )


Cut = Callable[[NDArray[np.uint8], Pretokens], Pretokens]
"""Cuts pre-tokens into the strings that are encoded; only `words_of` leaves out what lies between them."""


def whole_pretokens(_data: NDArray[np.uint8], pretokens: Pretokens) -> Pretokens:
    """Return the pre-tokens."""
    return pretokens


class EncoderParts(NamedTuple):
    """What an encoder and its workspaces share.

    Attributes:
        kernel: made by `kernels.encoding.encoding_kernel`.
        model: the tables of the kernel, which are only read.
        unknown_id: the id of the unknown token, or -1.
        make_scratch: makes what the kernel needs for a string of some bytes.
        cut: makes the strings that the kernel encodes.
    """

    kernel: Kernel[..., int]
    model: Any
    unknown_id: int
    make_scratch: Callable[[int], Any]
    cut: Cut


class KernelEncoder(LendsWorkspaces["Workspace"]):
    """Turns pre-tokens into ids by a family's kernel; safe to share between threads.

    Nothing that it holds leads back to it, so its memory is free as soon as nobody needs it.

    Attributes:
        law: see `pipeline.model.Encoder`.
        token_lengths: int64, shape (vocab_size,), bytes of text that each token covers.
        parts: what it works with.
    """

    def __init__(
        self,
        kernel: Kernel[..., int],
        model: Any,
        token_offsets: NDArray[np.int64],
        unknown_id: int = -1,
        make_scratch: Callable[[int], Any] = int,
        *,
        cut: Cut = whole_pretokens,
        memory: Callable[[], Memory] = make_memory,
    ) -> None:
        self.law: Law = Accounting(token_offsets, unknown_id)
        self.token_lengths = np.diff(token_offsets)
        self.parts = parts = EncoderParts(kernel, model, unknown_id, make_scratch, cut)
        super().__init__(lambda: Workspace(parts, memory()))

    def locate(
        self, ids: NDArray[np.int64], text: SegmentedText
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return where each token begins and ends, by encoding again."""
        with self.workspace() as workspace:
            spans = workspace.locate(text)
        return spans[: ids.shape[0], 0].copy(), spans[: ids.shape[0], 1].copy()


class TilingEncoder(KernelEncoder):
    """An encoder whose tokens have the bytes of the text, so that their lengths say where they are."""

    def locate(
        self, ids: NDArray[np.int64], text: SegmentedText
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return where each token begins and ends, by their lengths alone."""
        lengths = self.token_lengths[ids]
        ends = text.bounds[0] + np.cumsum(lengths)
        return ends - lengths, ends


class Workspace:
    """What an encoder writes to; for one thread at a time."""

    def __init__(self, parts: EncoderParts, memory: Memory) -> None:
        self._parts, self.memory = parts, memory
        self._room, self._scratch = USUAL_BYTES, parts.make_scratch(USUAL_BYTES)
        self._ids = np.empty(_USUAL_IDS, np.uint32)

    def encode(self, data: NDArray[np.uint8], pretokens: Pretokens, kinds: NDArray[np.int64]) -> Encoding:
        """Encode the pre-tokens of segments, a slice at a time, enlarging the scratch if need be."""
        edges = edges_of(pretokens, kinds.shape[0])
        return self._encode(data, self._parts.cut(data, pretokens), kinds, edges, self.memory)

    def locate(self, text: SegmentedText) -> NDArray[np.int64]:
        """Return where tokens begin and end, shape (at least their number, 2)."""
        strings = self._parts.cut(text.data, text.split())
        spans = np.empty((_id_room(strings, text.bounds), 2), np.int64)
        self._encode(
            text.data, strings, text.kinds, text.bounds, self.memory._replace(spans=spans, remembers=False)
        )
        return spans

    def _encode(
        self,
        data: NDArray[np.uint8],
        strings: Pretokens,
        kinds: NDArray[np.int64],
        edges: NDArray[np.int64],
        memory: Memory,
    ) -> Encoding:
        room, number, parts = _id_room(strings, edges), kinds.shape[0], self._parts
        ids = self._ids if room <= _USUAL_IDS else np.empty(room, np.uint32)
        ends, lost, progress = (
            np.zeros(number + 1, np.int64),
            np.zeros(number, np.int64),
            np.zeros(3, np.int64),
        )
        text, written = (data, strings.starts, strings.ends, strings.offsets), (ids, ends, lost, progress)
        lacking = PAUSED
        while lacking != DONE:
            raise_if_stopped()
            until = int(strings.starts[progress[PRETOKEN]]) + SLICE_BYTES if strings.starts.shape[0] else 0
            model = parts.unknown_id, parts.model, self._scratch
            lacking = parts.kernel(*text, kinds, edges, *model, memory, self._room, until, *written)
            if lacking > 0:
                refuse_longer(lacking)
                self._room = max(lacking, 2 * self._room)
                self._scratch = parts.make_scratch(self._room)
        if self._room > KEPT_BYTES:
            self._room, self._scratch = USUAL_BYTES, parts.make_scratch(USUAL_BYTES)
        if parts.cut is words_of:
            lost += np.where(kinds < 0, lost_between(strings, edges), 0)
        return Encoding(ids[: progress[NUM_IDS]], ends, lost)


def _id_room(strings: Pretokens, edges: NDArray[np.int64]) -> int:
    """Return how many ids there may be: one per byte, string and segment, and what is written behind them."""
    return int(edges[-1] - edges[0]) + len(strings.starts) + len(edges) + _BEHIND


def lost_between(strings: Pretokens, edges: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many bytes of each segment are in none of its strings."""
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(strings.ends - strings.starts)])
    lost: NDArray[np.int64] = np.diff(edges) - np.diff(before[strings.offsets])
    return lost


Scratch = Callable[[EncoderParts, int], Any]


def sampler(
    kernel: Kernel[..., int],
    strength: str = "dropout",
    most: float = 1.0,
    scratch: Scratch = lambda parts, length: parts.make_scratch(length),
) -> Callable[..., EncodedBatch]:
    """Make the function that draws segmentations for a family; see `sampling.sample_batch`.

    Args:
        kernel: made by `kernels.encoding.sampling_kernel`.
        strength: the name of what says how far it strays from the encoding, from 0 to `most`.
        most: see `strength`.
        scratch: makes what the kernel needs for a string of some bytes.
    """

    def sample(definition: Definition, texts: Texts, *, seed: int = 0, **how: float) -> EncodedBatch:
        _check_strength(strength, how[strength], most)
        _check_seed(seed)
        encoder = cast(KernelEncoder, definition.model.encoder())
        data, bounds, pretokens = cut_texts(definition, texts)
        parts = encoder.parts
        strings = parts.cut(data, pretokens)
        longest = int((strings.ends - strings.starts).max(initial=0))
        refuse_longer(longest, "sample")
        ids, ends = np.empty(_id_room(strings, bounds), np.uint32), np.zeros(bounds.shape[0], np.int64)
        lost = np.zeros(bounds.shape[0] - 1, np.int64)
        drawn = scratch(parts, longest), NOWHERE, float(how[strength]), np.array([seed], np.uint64)
        text = data, strings.starts, strings.ends, strings.offsets
        size = kernel(*text, parts.model, *drawn, ids, ends, lost)
        breach = encoder.law.breach(ids[:size], ends, bounds, lost + lost_between(strings, bounds))
        if breach is not None:
            raise LawError(breach.says, breach.segment)
        return EncodedBatch(ids[:size].astype(buffers.id_type(definition.vocab_size)), ends)

    return sample


def _check_strength(name: str, value: object, most: float) -> None:
    """Refuse a strength that is not a number from 0 to the greatest one."""
    if isinstance(value, bool) or not (isinstance(value, int | float) and 0 <= value <= most):
        raise TokenizerError(f"sample: {name}={value!r} must be a number from 0 to {most:g}; use e.g. 0.1")


def _check_seed(seed: object) -> None:
    """Refuse a seed that is not an integer of 64 bits."""
    if type(seed) is not int or not 0 <= seed < 1 << 64:
        raise TokenizerError(f"sample: seed={seed!r} must be an integer from 0 to 2**64 - 1")


def cut_texts(definition: Definition, texts: Texts) -> tuple[NDArray[np.uint8], NDArray[np.int64], Pretokens]:
    """Return normalized texts as data and offsets, and their pre-tokens; special tokens are ordinary text."""
    if definition.added_tokens:
        raise TokenizerError(
            f"sample: texts such as {definition.added_tokens[0]!r:.80} always become their tokens, for which "
            "segmentations cannot be drawn here; use sampling.sample_batch"
        )
    data, bounds = buffers.pack(texts)
    data, bounds = definition.normalizer.buffers(data, bounds)
    return data, bounds, definition.pre_tokenizer.compile().split(data, bounds)
