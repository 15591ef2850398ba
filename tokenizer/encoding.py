"""Cut documents at tokens, and encode them chunk by chunk; short texts without a kernel.

A chunk is small enough for its intermediate results to stay in the CPU's caches; threads take neighbouring
chunks. Calling a kernel costs more than a short text takes, so `regex` cuts that, and a dictionary has the
ids of known pre-tokens. Law: the ids are those of the kernels, which do all other cases.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.components.specials import (
    AllowedSpecial,
    AsText,
    Segments,
    Wanted,
    absorb,
    chunks,
    cut,
    wanted_specials,
    whole,
)
from tokmill.tokenizer.core.errors import LawError, TokenizerError
from tokmill.tokenizer.core.stopping import within_limit
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.pipeline.model import (
    Breach,
    Encoder,
    RawWorkspace,
    SegmentedText,
    TakesRawText,
    TextNormalizer,
)
from tokmill.tokenizer.splitting import Pretokens, Splitter
from tokmill.tokenizer.splitting.fallback import compile_regex
from tokmill.tokenizer.streaming import TextStream

Integer = TypeVar("Integer", bound=np.integer[Any])

_LEAST_BYTES_A_PART = 1 << 19
_PARTS_A_THREAD = 4  # so that no thread waits long for another at the end
_BYTES_A_TOKEN = 3  # a guess; arrays that turn out too small are enlarged


class _Growing(Generic[Integer]):
    """An array that is written from front to back, and enlarged when it is full."""

    def __init__(self, kind: type[Integer], expected: int) -> None:
        self._array = np.empty(expected, kind)
        self._used = 0

    def append(self, values: NDArray[Any]) -> None:
        after = self._used + values.shape[0]
        if after > self._array.shape[0]:
            self._array.resize(after + after // 2, refcheck=False)
        self._array[self._used : after] = values
        self._used = after

    def taken(self) -> NDArray[Integer]:
        """Return the written part; to be called last."""
        self._array.resize(self._used, refcheck=False)
        return self._array


class ChunkedEncoder:
    """Encodes segments with one model, split pattern and normalizer."""

    def __init__(self, encoder: Encoder, splitter: Splitter, normalizer: TextNormalizer) -> None:
        self._encoder = encoder
        self._splitter = splitter
        self._normalizer = normalizer
        self._raw = encoder.raw_text(normalizer, splitter) if isinstance(encoder, TakesRawText) else None

    def run(
        self, data: NDArray[np.uint8], segments: Segments, kind: type[Integer], num_threads: int = 1
    ) -> tuple[NDArray[Integer], NDArray[np.int64]]:
        """Encode segments; return the ids, and int64 offsets of shape (num_segments + 1,)."""
        if num_threads < 1:
            raise TokenizerError(f"encode: num_threads={num_threads} must be at least 1; use e.g. 1")
        parts = _parts(segments.bounds, num_threads)
        if len(parts) < 2:
            ids, lengths = self._run_part(data, segments, kind, 0, segments.kinds.shape[0])
        else:
            with ThreadPoolExecutor(num_threads) as pool:
                run = within_limit(lambda part: self._run_part(data, segments, kind, *part))
                done = list(pool.map(run, parts))
                ids = _joined([part for part, _ in done], kind, pool)
            lengths = np.concatenate([part for _, part in done])
        offsets = np.zeros(lengths.shape[0] + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        return ids, offsets

    def locate(
        self, data: NDArray[np.uint8], segments: Segments, ids: NDArray[np.int64]
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the normalized text of segments, their bounds, and where each id begins and ends."""
        kinds = segments.kinds
        text, bounds = self._normalizer.buffers(data, segments.bounds, kinds >= 0, segments.first)
        located = SegmentedText(text, bounds, kinds, lambda: self._splitter.split(text, bounds))
        return text, bounds, *self._encoder.locate(ids, located)

    def stream(self, normalizer: TextNormalizer, wanted: Wanted) -> TextStream:
        """Return a new stream, for a text that comes in parts."""
        return TextStream(self._splitter, normalizer, self._encode_pretokens, wanted)

    def pretokens(
        self, data: NDArray[np.uint8], offsets: NDArray[np.int64]
    ) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """Encode pre-tokens in one buffer, without normalizer and split pattern; return ids and offsets."""
        ids, lengths = (
            _Growing(np.uint32, int(offsets[-1]) // _BYTES_A_TOKEN + 1),
            np.empty(len(offsets) - 1, np.int64),
        )
        with self._encoder.workspace() as workspace:
            for start, stop in chunks(offsets):
                cuts = offsets[start : stop + 1]
                alone = Pretokens(cuts[:-1], cuts[1:], np.arange(stop - start + 1))
                found, ends, unknown = workspace.encode(data, alone, np.full(stop - start, -1))
                breach = self._encoder.law.breach(found, ends, cuts, unknown)
                if breach is not None:
                    raise LawError(breach.says, start + breach.segment)
                ids.append(found)
                lengths[start:stop] = np.diff(ends)
        return ids.taken(), np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])

    def encode_pretoken(self, data: bytes) -> list[int]:
        """Encode one pre-token."""
        one = np.array([0, len(data)])
        return self._encode_pretokens(np.frombuffer(data, np.uint8), one[:1], one[1:])

    def _encode_pretokens(
        self, text: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> list[int]:
        """Encode pre-tokens that tile the beginning of a text."""
        if not len(starts):
            return []
        pretokens = Pretokens(starts, ends, np.array([0, len(starts)]))
        with self._encoder.workspace() as workspace:
            found, cuts, unknown = workspace.encode(text, pretokens, np.array([-1]))
            breach = self._encoder.law.breach(found, cuts, np.append(starts[:1], ends[-1:]), unknown)
            if breach is not None:
                raise LawError(breach.says, 0)
            ids: list[int] = found.tolist()
        return ids

    def _run_part(
        self, data: NDArray[np.uint8], segments: Segments, kind: type[Integer], first: int, after: int
    ) -> tuple[NDArray[Integer], NDArray[np.int64]]:
        """Encode the segments from `first` to `after`; return the ids, and the number of each segment."""
        bounds = segments.bounds[first : after + 1]
        ids = _Growing(kind, int(bounds[-1] - bounds[0]) // _BYTES_A_TOKEN + after - first)
        lengths, begins = np.empty(after - first, np.int64), segments.first[first:after]
        raw: AbstractContextManager[RawWorkspace | None] = (
            nullcontext() if self._raw is None else self._raw.workspace()
        )
        with self._encoder.workspace() as workspace, raw as quick:
            for start, stop in chunks(bounds):
                kinds = segments.kinds[first + start : first + stop]
                cuts = bounds[start : stop + 1]
                encoded = quick and quick.encode(data, cuts, kinds)
                if encoded:
                    (found, ends, unknown), cuts = encoded
                else:
                    text, cuts = self._normalizer.buffers(data, cuts, kinds >= 0, begins[start:stop])
                    found, ends, unknown = workspace.encode(text, self._splitter.split(text, cuts), kinds)
                breach = self._encoder.law.breach(found, ends, cuts, unknown)
                if breach is not None:
                    raise _broken(segments, first + start + breach.segment, breach)
                ids.append(found)
                lengths[start:stop] = np.diff(ends)
        return ids.taken(), lengths


def _broken(segments: Segments, segment: int, breach: Breach) -> LawError:
    document = int(np.searchsorted(segments.documents, segment, side="right")) - 1
    return LawError(breach.says, document)


def _joined(parts: list[NDArray[Integer]], kind: type[Integer], pool: ThreadPoolExecutor) -> NDArray[Integer]:
    """Concatenate arrays, each copied by a thread, since most of the time is waiting for memory."""
    ends = np.cumsum([0, *map(len, parts)]).tolist()
    joined = np.empty(ends[-1], kind)

    def put(part: NDArray[Integer], first: int) -> None:
        joined[first : first + len(part)] = part

    list(pool.map(put, parts, ends[:-1]))
    return joined


def _parts(bounds: NDArray[np.int64], num_threads: int) -> list[tuple[int, int]]:
    """Divide segments into runs of about the same number of bytes, several per thread if there are enough."""
    total = int(bounds[-1] - bounds[0])
    number = min(_PARTS_A_THREAD * num_threads, total // _LEAST_BYTES_A_PART)
    if num_threads == 1 or number < 2:
        return []
    wanted = bounds[0] + total * np.arange(1, number) // number
    edges = [0, *np.searchsorted(bounds, wanted).tolist(), bounds.shape[0] - 1]
    return [(first, after) for first, after in itertools.pairwise(edges) if first < after]


class TextCutter:
    """Cuts documents at the special and added tokens of a definition; threads may share it."""

    def __init__(self, definition: Definition) -> None:
        self._definition = definition

    def wanted(self, allowed_special: AllowedSpecial, as_text: AsText) -> Wanted:
        """Return the tokens to look for in a text."""
        if allowed_special in ((), "all") and isinstance(as_text, bool):
            return self._usually_wanted[allowed_special == "all", as_text]
        specials = wanted_specials(self._definition.special_tokens, allowed_special, as_text)
        return self._definition.wanted(specials)

    @cached_property
    def _usually_wanted(self) -> Mapping[tuple[bool, bool], Wanted]:
        """The tokens to look for, by whether all special tokens are allowed, and whether they are text."""
        names, wanted = self._definition.special_tokens, self._definition.wanted
        return {
            (allowed, as_text): wanted(wanted_specials(names, "all" if allowed else (), as_text))
            for allowed in (False, True)
            for as_text in (False, True)
        }

    def cut(
        self, text: NDArray[np.uint8], cuts: NDArray[np.int64], wanted: Wanted
    ) -> tuple[NDArray[np.uint8], Segments]:
        """Cut documents at tokens, and leave out the white space that these take.

        Where tokens are looked for in normalized text, the result is normalized, but for what comes after.
        """
        definition, rules = self._definition, (wanted.refused, wanted.hiding)
        text, segments = absorb(text, cut(text, whole(cuts), wanted.tokens, *rules), definition.sides)
        if not definition.normalized_tokens:
            return text, segments
        text, segments = _normalized(definition.normalizers[0], text, segments)
        late = {*wanted.normalized.values()}
        segments = cut(text, segments, wanted.normalized, *rules)
        sides = {token: side for token, side in definition.sides.items() if token in late}
        return absorb(text, segments, sides)

    def normalized(
        self, text: NDArray[np.uint8], cuts: NDArray[np.int64], wanted: Wanted
    ) -> tuple[NDArray[np.uint8], Segments]:
        """Return documents as they are encoded: cut at tokens, and normalized."""
        return _normalized(self._definition.normalizers[1], *self.cut(text, cuts, wanted))


def _normalized(
    normalizer: TextNormalizer, text: NDArray[np.uint8], segments: Segments
) -> tuple[NDArray[np.uint8], Segments]:
    text, bounds = normalizer.buffers(text, segments.bounds, segments.kinds >= 0, segments.first)
    return text, replace(segments, bounds=bounds)


MOST_CHARS = 256  # of a text; longer ones are faster by kernel
_MOST_KNOWN = 1 << 16  # pre-tokens; then a new dictionary is started


class ShortTexts:
    """Encodes short texts; threads may share it."""

    def __init__(
        self,
        splitter: Splitter,
        normalizer: str | None,
        special_tokens: Iterable[str],
        encode: Callable[[bytes], list[int]],
    ) -> None:
        """Remember how to encode the bytes of one pre-token."""
        self._specials = tuple(special_tokens)
        shared = set(self._specials[0]).intersection(*self._specials) if self._specials else set[str]()
        self._mark = min(shared, default="")  # a character that every special token has
        compiled = compile_regex(splitter.chain[0])
        self._usable = len(splitter.chain) == 1 and normalizer is None and not compiled.groups
        self._cut = compiled.findall
        self._encode = encode
        self._known: dict[str, list[int]] = {}

    def encode(self, text: object) -> list[int] | None:
        """Return the ids of a text, or None if the kernels have to encode it."""
        if not self._usable or type(text) is not str or len(text) > MOST_CHARS or self._needs_care(text):
            return None
        pretokens = self._cut(text)
        if sum(map(len, pretokens)) != len(text):
            return None
        ids: list[int] = []
        known = self._known
        try:
            for pretoken in pretokens:
                ids += known[pretoken]
        except KeyError:
            return self._learn(pretokens)
        return ids

    def _needs_care(self, text: str) -> bool:
        """Whether a text holds a special token, or a surrogate."""
        if self._mark in text and any(name in text for name in self._specials):
            return True
        if text.isascii():
            return False
        try:
            text.encode()
        except UnicodeEncodeError:
            return True
        return False

    def _learn(self, pretokens: list[str]) -> list[int]:
        """Encode pre-tokens, some of them for the first time."""
        known = self._known if len(self._known) < _MOST_KNOWN else {}
        ids: list[int] = []
        for pretoken in pretokens:
            found = known.get(pretoken)
            if found is None:
                found = known[pretoken] = self._encode(pretoken.encode())
            ids += found
        self._known = known
        return ids
