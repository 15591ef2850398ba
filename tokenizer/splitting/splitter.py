"""A compiled split pattern, and the pre-tokens of a batch of documents.

Laws: the pre-tokens of a document tile it; no match looks beyond a document; the result depends neither on
batches nor on the engine. Each stretch that the expressions leave unmatched is a pre-token of its own, as in
Hugging Face's `Split` with `Isolated`; tiktoken drops it (of named patterns only `deepseek_v3` and
`punctuation` have such).
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Literal, Self, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.core import buffers
from tokmill.tokenizer.core.errors import PatternError, TokenizerError
from tokmill.tokenizer.kernels.characters import find_words
from tokmill.tokenizer.kernels.split import SplitTables, scan_segments
from tokmill.tokenizer.splitting import fallback
from tokmill.tokenizer.splitting.automaton import build_tables, tables_digest
from tokmill.tokenizer.splitting.fallback import outline
from tokmill.tokenizer.splitting.patterns import Digits, PatternLike, cut_groups, groups_of, resolve, shown
from tokmill.tokenizer.splitting.syntax import UnsupportedError, unicode_version

logger = logging.getLogger(__name__)

Engine: TypeAlias = Literal["automaton", "regex"]


@dataclass(frozen=True, slots=True)
class Pretokens:
    """Pre-tokens of a batch of documents; to be read only, as `starts` and `ends` may share memory.

    Attributes:
        starts: int64, shape (num_pretokens,); pre-token k is `data[starts[k]:ends[k]]`.
        ends: int64, shape (num_pretokens,).
        offsets: int64, shape (num_documents + 1,); document d has the pre-tokens `offsets[d]:offsets[d + 1]`.
    """

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    offsets: NDArray[np.int64]


class Splitter:
    """A chain of split expressions, ready to run; safe to share between threads.

    Attributes:
        pattern: the given pattern: a name, an expression, or a chain of them.
        digits: how digits are cut.
        chain: the expressions that are run, in order.
        tables: for each expression the tables of the kernels of `tokenizer.kernels.split`, or None if the
            automaton does not support it, and the `regex` package runs it. Of one that cuts runs into groups
            from the right they are those of the runs.
    """

    def __init__(self, pattern: PatternLike, digits: Digits = "pattern") -> None:
        self.pattern = pattern if isinstance(pattern, str) else tuple(pattern)
        self.digits = digits
        self.chain = resolve(pattern, digits)
        self.tables = tuple(compile_expression(expression) for expression in self.chain)

    def __repr__(self) -> str:
        return f"Splitter({self.pattern!r}, digits={self.digits!r}, engine={self.engine!r})"

    @cached_property
    def unicode(self) -> dict[str, str]:
        """The tables of letters, digits and other classes: their Unicode `version`, and a digest."""
        return {"version": unicode_version(), "tables": tables_digest(self.chain)}

    @property
    def engine(self) -> Engine:
        """`automaton`, or `regex` if at least one expression needs the slow way."""
        return "regex" if None in self.tables else "automaton"

    def split(self, data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> Pretokens:
        """Cut documents into pre-tokens.

        Args:
            data: uint8, shape (num_bytes,); UTF-8. An ill-formed byte counts as one character, the one that
                `surrogateescape` makes of it.
            offsets: int64, shape (num_documents + 1,), never decreasing; document d is
                `data[offsets[d]:offsets[d + 1]]`.

        Raises:
            PatternError: an expression that runs through `regex` matched the empty string.
            TokenizerError: the offsets do not fit the data.
        """
        data, offsets = buffers.checked(data, offsets)
        return self._cut(data, offsets[:-1], offsets[1:])

    def split_segments(
        self, data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> Pretokens:
        """Cut segments that need not be adjacent; each is a text of its own.

        Args:
            data: uint8, shape (num_bytes,); UTF-8, as in `split`.
            starts: int64, shape (num_segments,).
            ends: int64, shape (num_segments,); segment s is `data[starts[s]:ends[s]]`, within `data`.

        Raises:
            PatternError: an expression that runs through `regex` matched the empty string.
            TokenizerError: a segment does not lie within the data.
        """
        data, _ = buffers.checked(data, [0])
        wrong = np.flatnonzero((starts < 0) | (ends < starts) | (ends > len(data)))
        if wrong.size:
            first = wrong[0]
            raise TokenizerError(
                f"split: segment {first} is {starts[first]}:{ends[first]}, but a segment must lie within the "
                f"{len(data)} bytes of data and end where it starts or later; check starts and ends"
            )
        return self._cut(data, np.ascontiguousarray(starts), np.ascontiguousarray(ends))

    def _cut(self, data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Pretokens:
        return self.cut_from(0, data, starts, ends)

    def cut_from(
        self, level: int, data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> Pretokens:
        """Run the chain from one of its expressions on: each cuts the parts of the previous one."""
        found = Pretokens(starts, ends, np.arange(len(starts) + 1, dtype=np.int64))
        for number in range(level, len(self.chain)):
            parts = self.cut_by(number, data, found.starts, found.ends)
            found = Pretokens(parts.starts, parts.ends, parts.offsets[found.offsets])
        return found

    def cut_by(
        self, level: int, data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> Pretokens:
        """Cut segments, which lie within the data, by one expression of the chain."""
        tables = self.tables[level]
        if tables is None:
            return Pretokens(*fallback.split_segments(self.chain[level], data, starts, ends))
        return self.grouped(level, data, scan(tables, data, starts, ends))

    def grouped(self, level: int, data: NDArray[np.uint8], parts: Pretokens) -> Pretokens:
        """Cut the runs that `scan` found into groups, if the expression does that from the right."""
        tables, groups = self.tables[level], groups_of(self.chain[level])
        if tables is None or groups is None:
            return parts
        starts, ends, offsets = cut_groups(data, parts.starts, parts.ends, tables, groups.size)
        return Pretokens(starts, ends, offsets[parts.offsets])

    def split_text(self, text: str) -> list[str]:
        """Cut one text; for tests and for trying out a pattern."""
        data = text.encode("utf-8", "surrogateescape")
        found = self.split(np.frombuffer(data, np.uint8), np.array([0, len(data)], np.int64))
        spans = zip(found.starts.tolist(), found.ends.tolist(), strict=True)
        return [data[start:end].decode("utf-8", "surrogateescape") for start, end in spans]


def scan(
    tables: SplitTables, data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> Pretokens:
    """Cut segments, which lie within the data, by the tables of one expression."""
    cuts = np.empty(int((ends - starts).sum()) + 3, dtype=np.int64)
    offsets = np.empty(len(starts) + 1, dtype=np.int64)
    count = scan_segments(data, starts, ends, tables, cuts[1:], offsets)
    cuts[0] = starts[0] if len(starts) else 0
    found = Pretokens(cuts[:count], cuts[1 : count + 1], offsets)
    touching = bool((starts[1:] == ends[:-1]).all())
    return found if touching else _started(found, starts)


def _started(found: Pretokens, segment_starts: NDArray[np.int64]) -> Pretokens:
    """Have the first pre-token of each segment start where the segment does, which no cut before it tells."""
    starts = found.starts.copy()
    occupied = found.offsets[:-1] < found.offsets[1:]
    starts[found.offsets[:-1][occupied]] = segment_starts[occupied]
    return replace(found, starts=starts)


@lru_cache(maxsize=128)
def compile_expression(expression: str) -> SplitTables | None:
    """Compile one expression to tables; None, with a notice in the log, if the automaton cannot do it.

    Raises:
        PatternError: the expression does not parse, or it matches the empty string.
    """
    fallback.compile_regex(expression)
    groups = groups_of(expression)
    try:
        return build_tables(expression if groups is None else groups.runs)
    except UnsupportedError as reason:
        if not outline(expression).takes_text:
            raise fallback.empty_match(expression) from None
        logger.warning(
            "split pattern %s runs through the regex package, which is right but many times slower: "
            "the automaton does not do %s",
            shown(expression),
            reason,
        )
        return None


def compile_pattern(pattern: PatternLike, digits: Digits = "pattern") -> Splitter:
    r"""Compile a split pattern; equal arguments give the same object.

    Args:
        pattern: a name (`SPLIT_PATTERNS`, `SPLIT_CHAINS`), a regular expression, or a chain of them.
        digits: `pattern` cuts digits by the pattern; `single` cuts out every `\p{N}` first and
            `groups_of_three` up to three of them from the left (`groups_of_three_from_right`: from the
            right), and the pattern cuts the text in between.

    Raises:
        PatternError: an unknown name, or an expression that does not parse or matches the empty string.
    """
    resolve(pattern, digits)
    return _compiled(pattern if isinstance(pattern, str) else tuple(pattern), digits)


@lru_cache(maxsize=64)
def _compiled(pattern: str | tuple[str, ...], digits: str) -> Splitter:
    return Splitter(pattern, cast(Digits, digits))


def words_of(data: NDArray[np.uint8], pretokens: Pretokens) -> Pretokens:
    """Return the words of pre-tokens: the runs of characters that are not white space."""
    starts, ends = pretokens.starts, pretokens.ends
    room = int(((ends - starts + 1) // 2).sum())
    words, firsts = np.empty((2, room), np.int64), np.empty(starts.shape[0] + 1, np.int64)
    number = find_words(data, starts, ends, words[0], words[1], firsts)
    return Pretokens(words[0, :number], words[1, :number], firsts[pretokens.offsets])


def edges_of(pretokens: Pretokens, num_segments: int) -> NDArray[np.int64]:
    """Return where each segment begins, given that pre-tokens tile the text; an empty one has no bytes."""
    edges = np.zeros(num_segments + 1, np.int64)
    if pretokens.starts.shape[0]:
        begins = pretokens.offsets < pretokens.starts.shape[0]
        edges[:] = pretokens.ends[-1]
        edges[begins] = pretokens.starts[pretokens.offsets[begins]]
    return edges


@dataclass(frozen=True)
class PreTokenizer:
    """A split pattern.

    Attributes:
        split_pattern: a name, an expression, or a chain of expressions.
        digits: how digits are cut.

    Raises:
        PatternError: an unknown name, or an invalid expression.
    """

    split_pattern: PatternLike
    digits: Digits = "pattern"

    def __post_init__(self) -> None:
        resolve(self.split_pattern, self.digits)

    @property
    def chain(self) -> tuple[str, ...]:
        """The expressions that the pattern and the digits stand for."""
        return resolve(self.split_pattern, self.digits)

    def compile(self) -> Splitter:
        """Return the splitter that runs it; the same one for equal patterns."""
        return compile_pattern(self.split_pattern, self.digits)

    def spec(self) -> dict[str, Any]:
        """Return the pre-tokenizer as JSON-able data.

        `split_chain` is what `split_pattern` and `digits` stand for, so that a spec keeps its meaning if a
        later version gives the name to another pattern.
        """
        pattern = self.split_pattern
        return {
            "split_pattern": pattern if isinstance(pattern, str) else list(pattern),
            "digits": self.digits,
            "split_chain": list(self.chain),
        }

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Self:
        """Build it from the result of `spec`: by name if the name still stands for the same chain."""
        pattern, digits, chain = spec["split_pattern"], spec["digits"], spec["split_chain"]
        try:
            same = list(resolve(pattern, digits)) == chain
        except PatternError:
            same = False
        if same:
            return cls(pattern if isinstance(pattern, str) else tuple(pattern), digits)
        return cls(tuple(chain))
