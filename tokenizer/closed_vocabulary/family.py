"""Families whose model is a closed vocabulary; they differ in the strings that pre-tokens are cut into.

Laws: a string counts as often as the pre-tokens that contain it; of equally frequent strings the one whose
    bytes are smaller comes first, as in Hugging Face's `WordLevelTrainer`; the same counts give the same
    vocabulary in any order; a smaller vocabulary is a prefix of a larger one; no token has a special token's
    bytes. `vocab_size` is an upper limit.
Ids: `[UNK]` is 0, then the strings, the most frequent first, then special tokens, then reserved ones. Strings
below `min_frequency`, or longer than `max_token_bytes`, are left out.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tokmill.tokenizer.closed_vocabulary.model import ClosedModel, Cut
from tokmill.tokenizer.core.errors import TrainingError
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.counting import PretokenCounter
from tokmill.tokenizer.pipeline.base_model import UNKNOWN, least_vocab_size
from tokmill.tokenizer.pipeline.families import Family
from tokmill.tokenizer.pipeline.model import Model, Progress
from tokmill.tokenizer.pipeline.options import ModelOptions, refuse_tie_break
from tokmill.tokenizer.splitting import Pretokens

_GREATEST = np.iinfo(np.uint64).max


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
