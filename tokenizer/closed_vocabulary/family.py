"""Families whose model is a closed vocabulary; they differ in the strings that pre-tokens are cut into.

Laws: a string counts as often as the pre-tokens that contain it; ties go to the smaller bytes, as in Hugging
Face's `WordLevelTrainer`; the same counts give the same vocabulary in any order, and a smaller one is a
prefix of a larger one; no token has a special token's bytes. `vocab_size` is an upper limit. Ids: `[UNK]` is
0, then strings, the most frequent first, special and reserved tokens.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.closed_vocabulary.kernels import encode_strings
from tokmill.tokenizer.core.buffers import pack_bytes, unpack
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.counting import PretokenCounter
from tokmill.tokenizer.kernels.cache import empty_cache
from tokmill.tokenizer.kernels.counting import CountTables, count_strings, empty_tables
from tokmill.tokenizer.kernels.encoding import make_memory
from tokmill.tokenizer.pipeline.base_model import (
    SPECIAL_WITH_UNKNOWN,
    UNKNOWN,
    BaseModel,
    check_size,
    check_unknown,
    least_vocab_size,
    names_of,
    numbers_of,
    piece_vocabulary,
)
from tokmill.tokenizer.pipeline.encoder import Cut, KernelEncoder, whole_pretokens
from tokmill.tokenizer.pipeline.families import Family
from tokmill.tokenizer.pipeline.model import Model, Progress
from tokmill.tokenizer.pipeline.options import ModelOptions, refuse_tie_break
from tokmill.tokenizer.splitting import Pretokens

_GREATEST = np.iinfo(np.uint64).max


@dataclass(frozen=True, eq=False)
class ClosedModel(BaseModel):
    """A model of a closed vocabulary.

    Attributes:
        vocabulary: the bytes of every id; the unknown token is one of its special tokens.
        family: the family's name.
        unit: the family's name for its tokens: `word`, `character`.
        cut: cuts pre-tokens into strings.
        unknown_token: the name of the unknown token.

    Raises:
        VocabularyError: the unknown token is not a special token, or there are too many ids.
    """

    family: str
    unit: str
    cut: Cut
    unknown_token: str = UNKNOWN

    def __post_init__(self) -> None:
        check_unknown(self.vocabulary, self.unknown_token)
        check_size(self.vocabulary)

    def spec(self) -> dict[str, Any]:
        """Return the name of the unknown token; everything else is in the vocabulary."""
        return {"unknown_token": self.unknown_token}

    def encoder(self) -> KernelEncoder:
        """Make an encoder."""
        tables = _lay_out(self.vocabulary)

        def own(_length: int) -> CountTables:
            return tables._replace(block=np.empty_like(tables.block))

        parts = encode_strings, 0, self.vocabulary.offsets, self.unknown_id, own
        return KernelEncoder(*parts, cut=self.cut, memory=lambda: make_memory(empty_cache(0, 0, 0)))

    def kind(self, token: bytes) -> str:
        """Return the kind of an ordinary token: the family's own."""
        del token
        return self.unit

    def figures(self) -> dict[str, int]:
        """Return the number of words, or characters, in the vocabulary."""
        return {f"num_{self.unit}s": sum(1 for _ in self.vocabulary.ordinary())}

    def recovers(self, pretokens: Sequence[bytes]) -> list[bytes]:
        """Return the known strings, and the unknown token's name for each other one."""
        data, offsets = pack_bytes(list(pretokens))
        whole = Pretokens(offsets[:-1], offsets[1:], np.array([0, len(pretokens)]))
        known = {token for _, token in self.vocabulary.ordinary()}
        ends = np.concatenate([np.zeros(1, np.int64), self.cut(data, whole).ends])
        strings = unpack(data, ends)
        return [string if string in known else self.unknown_token.encode() for string in strings]


def _lay_out(vocabulary: Vocabulary) -> CountTables:
    """Make the kernel's tables, at most half full."""
    ids = np.array([i for i, _ in vocabulary.ordinary()], np.int64)
    starts, ends = vocabulary.offsets[ids], vocabulary.offsets[ids + 1]
    room = 1 << (2 * ids.shape[0]).bit_length()
    tables, nothing = empty_tables(room, room, vocabulary.data.shape[0]), np.zeros(0, np.int64)
    weights = (ids + 1).astype(np.uint64)
    count_strings(vocabulary.data, starts, ends, weights, 0, tables, nothing, nothing)
    return tables


class ClosedTraining:
    """Trains one or more vocabulary sizes, which are upper limits; see `pipeline.model.Trainer`."""

    def __init__(
        self,
        make: Callable[[Vocabulary], ClosedModel],
        cut: Cut,
        counts: PretokenCounts,
        options: ModelOptions,
        vocab_sizes: Sequence[int],
    ) -> None:
        """Count strings."""
        check_options(options)
        self._make, self._options = make, options
        self._numbers = numbers_of(vocab_sizes, {SPECIAL_WITH_UNKNOWN: len(names_of(options))})
        self._strings = _most_frequent(_counted(counts, cut), options, max(self._numbers))

    def models(self, progress: Progress | None = None) -> list[Model]:
        """Make a model of each size, in order."""
        if progress is not None:
            progress(len(self._strings), max(self._numbers))
        return [
            self._make(piece_vocabulary(self._strings[:number], self._options)) for number in self._numbers
        ]


def check_options(options: ModelOptions) -> None:
    """Refuse the options of merges."""
    refuse_tie_break(
        options,
        "merges, which this family does not make: of equally frequent strings the smaller one comes first",
    )


def _counted(counts: PretokenCounts, cut: Cut) -> PretokenCounts:
    """Count the strings of pre-tokens, in order of their bytes."""
    some = np.diff(counts.offsets) > 0  # a caller's counts may have an empty pre-token, but text has none
    starts, ends = counts.offsets[:-1][some], counts.offsets[1:][some]
    strings = cut(counts.data, Pretokens(starts, ends, np.arange(starts.shape[0] + 1)))
    weights = np.repeat(counts.counts[some], np.diff(strings.offsets))
    counted = weights > 0
    counter = PretokenCounter()
    counter.add(counts.data, strings.starts[counted], strings.ends[counted], weights[counted])
    return counter.take()


def _most_frequent(counts: PretokenCounts, options: ModelOptions, number: int) -> list[bytes]:
    """Return the most frequent strings that may be tokens, the most frequent first."""
    longest = options.max_token_bytes or np.iinfo(np.int64).max
    lengths = np.diff(counts.offsets)
    chosen = np.flatnonzero((counts.counts >= options.min_frequency) & (lengths <= longest))
    order = chosen[np.argsort(_GREATEST - counts.counts[chosen], kind="stable")]
    forbidden = {name.encode() for name in names_of(options)}
    starts, ends = counts.offsets[:-1], counts.offsets[1:]
    found = (counts.data[starts[i] : ends[i]].tobytes() for i in order[: number + len(forbidden)])
    return [string for string in found if string not in forbidden][:number]


def closed_family(name: str, title: str, kind: str, cut: Cut) -> Family:
    """Make the family."""

    def model_of(vocabulary: Vocabulary, unknown_token: str = UNKNOWN) -> ClosedModel:
        return ClosedModel(vocabulary, name, kind, cut, unknown_token)

    def from_spec(vocabulary: Vocabulary, spec: Mapping[str, Any]) -> ClosedModel:
        return model_of(vocabulary, spec["unknown_token"])

    def trainer(counts: PretokenCounts, options: ModelOptions, vocab_sizes: Sequence[int]) -> ClosedTraining:
        return ClosedTraining(model_of, cut, counts, options, vocab_sizes)

    parts = from_spec, trainer, least_vocab_size
    formats = {"huggingface": f"tokmill.tokenizer.closed_vocabulary.huggingface:{name.upper()}"}
    return Family(name, title, f"{kind}s", *parts, formats, check_options=check_options, revision=1)


def cut_characters(data: NDArray[np.uint8], pretokens: Pretokens) -> Pretokens:
    """Cut pre-tokens into characters: a byte, and the continuation bytes of UTF-8 that follow it.

    So every string of bytes has characters, well-formed or not.
    """
    if not pretokens.starts.shape[0]:
        return pretokens
    first, last = int(pretokens.starts[0]), int(pretokens.ends[-1])
    begins = (data[first:last] & 0xC0) != 0x80
    begins[pretokens.starts - first] = True
    starts = np.flatnonzero(begins) + first
    offsets = np.append(np.searchsorted(starts, pretokens.starts), starts.shape[0])[pretokens.offsets]
    return Pretokens(starts, np.append(starts[1:], last), offsets)


WORD_LEVEL = closed_family("word_level", "Word-level", "word", whole_pretokens)
CHARACTER_LEVEL = closed_family("character_level", "Character-level", "character", cut_characters)
