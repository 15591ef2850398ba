"""Families whose model is a closed vocabulary; they differ in the strings that pre-tokens are cut into.

Laws: a string counts as often as the pre-tokens that contain it; ties go to the smaller bytes, as in Hugging
Face's `WordLevelTrainer`; the same counts give the same vocabulary in any order, and a smaller one is a
prefix of a larger one; no token has a special token's bytes. `vocab_size` is an upper limit. Ids: `[UNK]` is
0, then strings, the most frequent first, special and reserved tokens.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.core.buffers import pack_bytes, unpack
from tokmill.tokenizer.core.errors import TrainingError
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.core.stopping import raise_if_stopped
from tokmill.tokenizer.core.token_tables import lay_out_tokens
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.counting import PretokenCounter
from tokmill.tokenizer.kernels.counting import CountTables
from tokmill.tokenizer.kernels.lookup import look_up
from tokmill.tokenizer.pipeline.base_model import (
    UNKNOWN,
    Accounting,
    BaseModel,
    check_size,
    check_unknown,
    least_vocab_size,
)
from tokmill.tokenizer.pipeline.families import Family
from tokmill.tokenizer.pipeline.model import Encoding, Law, Model, Progress, SegmentedText
from tokmill.tokenizer.pipeline.options import ModelOptions, refuse_tie_break
from tokmill.tokenizer.splitting import Pretokens

_GREATEST = np.iinfo(np.uint64).max


Cut: TypeAlias = Callable[[NDArray[np.uint8], Pretokens], Pretokens]
"""Cuts pre-tokens, which lie side by side and are not empty, into the strings that are looked up."""


class ClosedEncoder:
    """Turns pre-tokens into ids; safe to share between threads."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        unknown_id: int,
        cut: Cut,
    ) -> None:
        self.law: Law = Accounting(vocabulary.offsets, unknown_id)
        self._tables = lay_out_tokens(vocabulary, np.array([i for i, _ in vocabulary.ordinary()], np.int64))
        self._unknown_id, self._cut = unknown_id, cut

    @contextmanager
    def workspace(self) -> Iterator["Workspace"]:
        """Lend a workspace to one thread for the length of the block."""
        own = self._tables._replace(block=np.empty_like(self._tables.block))
        yield Workspace(own, self._unknown_id, self._cut)

    def locate(
        self, ids: NDArray[np.int64], text: SegmentedText
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return where each token begins and ends: where its string does."""
        strings = self._cut(text.data, text.split())
        whole = np.repeat(text.kinds >= 0, np.diff(strings.offsets))
        starts = np.sort(np.concatenate([strings.starts[~whole], text.bounds[:-1][text.kinds >= 0]]))
        ends = np.sort(np.concatenate([strings.ends[~whole], text.bounds[1:][text.kinds >= 0]]))
        return starts, ends


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

    def encoder(self) -> ClosedEncoder:
        """Make an encoder."""
        return ClosedEncoder(self.vocabulary, self.unknown_id, self.cut)

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


class ClosedTraining:
    """Trains one or more vocabulary sizes; see `pipeline.model.Trainer`."""

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
        names = list(dict.fromkeys([UNKNOWN, *options.names]))
        self._make, self._names, self._num_reserved = make, names, options.num_reserved
        least = least_vocab_size(options.special_tokens, options.num_reserved)
        self._numbers = [_num_strings(size, least) for size in vocab_sizes]
        self._strings = _most_frequent(_counted(counts, cut), options, names, max(self._numbers))

    def models(self, progress: Progress | None = None) -> list[Model]:
        """Make a model of each size, in order."""
        made = [self._model(self._strings[:number]) for number in self._numbers]
        if progress is not None:
            progress(len(self._strings), max(self._numbers))
        return list(made)

    def _model(self, strings: Sequence[bytes]) -> ClosedModel:
        unknown, *others = self._names
        specials = {unknown: 0} | {name: 1 + len(strings) + i for i, name in enumerate(others)}
        tokens = dict(enumerate(strings, start=1))
        return self._make(Vocabulary.build(tokens, specials, self._num_reserved))


def check_options(options: ModelOptions) -> None:
    """Refuse the options of merges."""
    refuse_tie_break(
        options,
        "merges, which this family does not make: of equally frequent strings the smaller one comes first",
    )


def _num_strings(vocab_size: int, least: int) -> int:
    if vocab_size < least:
        raise TrainingError(
            f"train: vocab_size={vocab_size} is too small for {least - 1} special and reserved tokens, "
            f"{UNKNOWN} among them, and one other; use at least {least}"
        )
    return vocab_size - least + 1


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


def _most_frequent(
    counts: PretokenCounts, options: ModelOptions, names: Sequence[str], number: int
) -> list[bytes]:
    """Return the most frequent strings that may be tokens, the most frequent first."""
    longest = options.max_token_bytes or np.iinfo(np.int64).max
    lengths = np.diff(counts.offsets)
    chosen = np.flatnonzero((counts.counts >= options.min_frequency) & (lengths <= longest))
    order = chosen[np.argsort(_GREATEST - counts.counts[chosen], kind="stable")]
    forbidden = {name.encode() for name in names}
    starts, ends = counts.offsets[:-1], counts.offsets[1:]
    found = (counts.data[starts[i] : ends[i]].tobytes() for i in order[: number + len(forbidden)])
    return [string for string in found if string not in forbidden][:number]


def closed_family(name: str, title: str, kind: str, cut: Cut, formats: Mapping[str, str]) -> Family:
    """Make the family."""

    def model_of(vocabulary: Vocabulary, unknown_token: str = UNKNOWN) -> ClosedModel:
        return ClosedModel(vocabulary, name, kind, cut, unknown_token)

    def from_spec(vocabulary: Vocabulary, spec: Mapping[str, Any]) -> ClosedModel:
        return model_of(vocabulary, spec["unknown_token"])

    def trainer(counts: PretokenCounts, options: ModelOptions, vocab_sizes: Sequence[int]) -> ClosedTraining:
        return ClosedTraining(model_of, cut, counts, options, vocab_sizes)

    parts = from_spec, trainer, least_vocab_size
    return Family(name, title, f"{kind}s", *parts, formats, check_options=check_options, revision=1)


class Workspace:
    """A vocabulary's tables with scratch of its own; for one thread at a time."""

    def __init__(
        self,
        tables: CountTables,
        unknown_id: int,
        cut: Cut,
    ) -> None:
        self._tables, self._unknown_id, self._cut = tables, unknown_id, cut

    def encode(self, data: NDArray[np.uint8], pretokens: Pretokens, kinds: NDArray[np.int64]) -> Encoding:
        """Encode the pre-tokens of segments."""
        raise_if_stopped()
        strings, number = self._cut(data, pretokens), kinds.shape[0]
        ids = np.empty(strings.starts.shape[0] + number, np.uint32)
        ends, unknown_bytes = np.empty(number + 1, np.int64), np.empty(number, np.int64)
        arguments = data, strings.starts, strings.ends, strings.offsets, kinds, self._tables, self._unknown_id
        size = look_up(*arguments, ids, ends, unknown_bytes)
        return Encoding(ids[:size], ends, unknown_bytes)
