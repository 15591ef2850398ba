"""Unigram language models (Kudo 2018), trained from counts of pre-tokens as sentencepiece does it.

Laws: the same counts give the same pieces and scores in any order and with any number of threads; every
character of the text (of its most frequent part, with `character_coverage`) is a piece; a sweep equals each
size alone; no piece has a special token's bytes. Ids: `[UNK]` is 0, then (with `byte_fallback`) the 256
bytes, pieces, the greatest score first, ties by the smaller string, special and reserved tokens; in the mode
`sentencepiece` those of `sentences.options`. A piece lies in a pre-token and occurs at least twice, or
`min_frequency` times.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.core.buffers import pack_bytes
from tokmill.tokenizer.core.errors import TrainingError
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.core.stopping import raise_if_stopped, within_limit
from tokmill.tokenizer.pipeline.base_model import least_vocab_size, names_of, piece_vocabulary
from tokmill.tokenizer.pipeline.encoder import sampler
from tokmill.tokenizer.pipeline.families import Family
from tokmill.tokenizer.pipeline.model import Model, Progress
from tokmill.tokenizer.pipeline.options import ModelOptions, accept_smaller, refuse_tie_break
from tokmill.tokenizer.sentences import options as sentences
from tokmill.tokenizer.sentences.options import Symbols, piece_rules, too_small
from tokmill.tokenizer.sentences.words import cut_words
from tokmill.tokenizer.unigram.expectation import (
    STEPS,
    Sums,
    count_best,
    drop_edges,
    expect,
    find_losses,
    list_edges,
    maximize,
)
from tokmill.tokenizer.unigram.lattice import make_found, make_paths
from tokmill.tokenizer.unigram.model import NAME, USER_DEFINED_SCORE, UnigramModel, lay_out
from tokmill.tokenizer.unigram.seeding import SeedRules, Seeds, TrainingText, find_seeds, prepare
from tokmill.tokenizer.unigram.segmentation import sample_pretokens

_NO_LIMIT = 1 << 31


class UnigramTraining:
    """Trains one or more vocabulary sizes, each alone; see `pipeline.model.Trainer`."""

    def __init__(self, counts: PretokenCounts, options: ModelOptions, vocab_sizes: Sequence[int]) -> None:
        """Prepare the text, and find the seeds."""
        check_options(options)
        self._options, self._sizes = options, vocab_sizes
        self._ids = SentenceIds(options) if options.on_sentences else PretokenIds(options)
        self._text = self._ids.text(counts)
        least = self._ids.number + len(self._text.alphabet)
        if not self._text.alphabet:
            raise TrainingError("train: the text is empty, so there is nothing to learn; add text")
        for size in vocab_sizes:
            if size < least:
                numbers = self._ids.number, len(self._text.alphabet)
                raise too_small(size, *numbers, options.character_coverage)
        self._seeds = find_seeds(self._text, _rules(options, self._ids))

    def models(self, progress: Progress | None = None) -> list[Model]:
        """Make a model of each size, in order."""
        return [self._model(size, progress) for size in self._sizes]

    def _model(self, vocab_size: int, progress: Progress | None) -> UnigramModel:
        number = vocab_size - self._ids.number
        trainer = UnigramTrainer(self._text, self._seeds, self._options.num_threads)
        trainer.run(number, self._options.shrinking_factor, progress)
        pieces = trainer.best(number)
        if len(pieces) < number:
            error = TrainingError(
                f"train: the corpus has only {len(pieces)} pieces that are expected to occur, but "
                f"vocab_size={vocab_size} needs {number}; lower vocab_size to "
                f"{self._ids.number + len(pieces)}, or add text"
            )
            accept_smaller(self._options, error)
        spelled = [(self._text.spelled(piece), min(score, 0.0)) for piece, score in pieces]
        return self._ids.model(spelled)


def check_options(options: ModelOptions) -> None:
    """Refuse the options of merges."""
    refuse_tie_break(
        options,
        "merges, which this family does not make: of equal scores the smaller string comes first",
    )


def _rules(options: ModelOptions, ids: "PretokenIds | SentenceIds") -> SeedRules:
    return SeedRules(
        options.seed,
        options.seed_size,
        options.min_frequency / options.count_unit,
        options.max_piece_length,
        options.max_token_bytes or _NO_LIMIT,
        ids.forbidden,
        ids.allows,
        options.count_unit,
    )


class PretokenIds:
    """The ids of a model that is trained on pre-tokens.

    Attributes:
        number: how many are not learned.
        forbidden: strings that are not pieces.
        allows: whether a string may be a piece; None if all may be.
    """

    allows: Callable[[str], bool] | None = None

    def __init__(self, options: ModelOptions) -> None:
        """Take the special tokens of the options, and `[UNK]`."""
        self._options, names = options, names_of(options)
        self.number = len(names) + (256 if options.byte_fallback else 0)
        self.forbidden = {name.encode() for name in names}

    def text(self, counts: PretokenCounts) -> TrainingText:
        """Prepare the text."""
        return prepare(counts, self._options.count_unit, self._options.character_coverage, self.forbidden)

    def model(self, pieces: Sequence[tuple[bytes, float]]) -> UnigramModel:
        """Give ids to pieces and special tokens."""
        vocabulary = piece_vocabulary(
            [piece for piece, _ in pieces], self._options, byte_fallback=self._options.byte_fallback
        )
        scores, first = np.zeros(vocabulary.size), 1 + len(vocabulary.byte_ids)
        scores[first : first + len(pieces)] = [score for _, score in pieces]
        return UnigramModel(vocabulary, scores)


class SentenceIds:
    """The ids of a model that is trained on whole sentences; see `PretokenIds`."""

    def __init__(self, options: ModelOptions) -> None:
        """Give ids to the symbols."""
        self._options, self._symbols, self._rules = options, Symbols(options), piece_rules(options)
        self.number, self.allows = len(self._symbols), self._rules.allows
        self.forbidden = {name.encode() for name in self._symbols.names}

    def text(self, counts: PretokenCounts) -> TrainingText:
        """Prepare the text."""
        words = cut_words(counts, self._rules, self._options.character_coverage, self._symbols.names)
        order = sorted(range(len(words.alphabet)), key=words.alphabet.__getitem__)
        return TrainingText(
            words.counts.data,
            words.counts.offsets,
            words.counts.counts.astype(np.float64) / self._options.count_unit,
            [words.alphabet[i] for i in order],
            words.frequencies[order] / self._options.count_unit,
            {},
        )

    def model(self, pieces: Sequence[tuple[bytes, float]]) -> UnigramModel:
        """Give ids to pieces and symbols."""
        found = self._symbols.lay_out(pieces, self._options.num_reserved)
        scores = found.scores.copy()
        scores[list(found.frozen)] = USER_DEFINED_SCORE
        return UnigramModel(found.vocabulary, scores, sentences.UNKNOWN, "single")


FAMILY = Family(
    NAME,
    "Unigram",
    "pruned pieces",
    UnigramModel.from_spec,
    UnigramTraining,
    least_vocab_size,
    dict.fromkeys(("huggingface", "sentencepiece", "gguf"), "tokmill.tokenizer.unigram.formats"),
    check_options=check_options,
    revision=3,
    sample=sampler(sample_pretokens, "alpha", 1e6),
    strength="alpha",
)


NUM_SUB_ITERATIONS = 2
MARGIN = 1.1
_NUM_PARTS = 8


class UnigramTrainer:
    """The pieces of a training, by the order of their bytes, with their scores so far.

    Attributes:
        scores: float64, shape (num_seeds,), rounded (`expectation`); -inf for removed ones.
        likelihood: the log probability of the text under the scores before the last sub-iteration, in nats.
    """

    def __init__(self, text: TrainingText, seeds: Seeds, num_threads: int = 1) -> None:
        self._text, self._seeds, self._num_threads = text, seeds, num_threads
        self._data, self._offsets = pack_bytes(seeds.strings)
        self._lengths = np.diff(self._offsets).astype(np.int32)
        self.scores = np.round((np.log(seeds.scores) - np.log(seeds.scores.sum())) * STEPS) / STEPS
        self.likelihood = float("-inf")
        everything = np.arange(len(seeds.strings))
        self._pieces = lay_out(self._data, self._offsets, everything, self.scores)
        self._longest_piece = int(self._lengths.max())
        self._longest = int(np.diff(text.offsets).max())
        self._kept = seeds.characters.astype(np.uint8)
        self._starts, self._edges = self._list_edges()

    @property
    def size(self) -> int:
        """The number of pieces that are left."""
        return int(np.count_nonzero(np.isfinite(self.scores)))

    def run(self, wanted: int, shrinking_factor: float, progress: Progress | None = None) -> None:
        """Train until at most 1.1 times `wanted` pieces are left."""
        enough, first = int(wanted * MARGIN), self.size
        while True:
            for _ in range(NUM_SUB_ITERATIONS):
                self._improve()
            if progress is not None:
                progress(min(first - self.size, max(first - enough, 0)), max(first - enough, 0))
            if self.size <= enough:
                return
            self._prune(max(enough, int(shrinking_factor * self.size)))

    def best(self, number: int) -> list[tuple[bytes, float]]:
        """Return all characters and the pieces of the greatest scores, up to `number`, the greatest first.

        Scores have 15 digits: every reader of a decimal number, however it rounds, reads these alike
        (`unigram.formats`), so that equal sums are decided alike.
        """
        order = np.lexsort((np.arange(self.scores.shape[0]), -self.scores))
        left = order[: self.size]
        isolated = self._seeds.characters[left]
        room = max(number - int(np.count_nonzero(isolated)), 0)
        chosen = left[isolated | (np.cumsum(~isolated) <= room)]
        return [(self._seeds.strings[i], float(f"{self.scores[i]:.15g}")) for i in chosen]

    def _list_edges(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        starts, found = np.empty(self._text.data.shape[0] + 1, np.int64), make_found(self._longest_piece)
        given = self._text.data, self._text.offsets, self._pieces.trie, found, starts
        edges = np.empty(list_edges(*given, np.empty(0, np.int32)), np.int32)
        list_edges(*given, edges)
        return starts, edges

    def _improve(self) -> None:
        """Do one sub-iteration: expected counts, then scores from them, without the rarest pieces."""
        chances, alive = np.exp(self.scores), np.isfinite(self.scores)
        least, size = float(self.scores[alive].min()), self.scores.shape[0]
        text, edges = self._text, (self._starts, self._edges, self._lengths, self.scores, chances, least)

        def work(first: int, after: int) -> tuple[float, NDArray[np.float64]]:
            expected, sums = np.zeros(size), Sums(*np.empty((2, self._longest + 1), np.float64))
            return expect(text.offsets, text.counts, first, after, *edges, sums, expected), expected

        found = self._over_text(work)
        self.likelihood = sum(likelihood for likelihood, _ in found)
        expected = np.zeros(size)
        for _, part in found:
            expected += part
        maximize(expected, self._kept, self.scores, chances)
        self._drop()

    def _prune(self, size: int) -> None:
        """Remove the pieces whose removal loses least, until `size` are left; characters stay."""
        text, frequencies = self._text, np.zeros(self.scores.shape[0])

        def work(first: int, after: int) -> NDArray[np.float64]:
            counted, paths = np.zeros_like(frequencies), make_paths(self._longest, self._longest_piece)
            edges = self._starts, self._edges, self._lengths, self.scores
            count_best(text.offsets, text.counts, first, after, *edges, paths, counted)
            return counted

        for part in self._over_text(work):
            frequencies += part
        losses = self._losses(frequencies)
        losses[self._seeds.characters] = np.inf
        order = np.lexsort((np.arange(losses.shape[0]), -losses))
        removed = order[size:]
        self.scores[removed] = -np.inf
        self.scores[losses == -np.inf] = -np.inf
        self._drop()

    def _losses(self, frequencies: NDArray[np.float64]) -> NDArray[np.float64]:
        losses, total = np.empty(frequencies.shape[0]), float(self._text.counts.sum())
        pieces = self._pieces._replace(scores=self.scores)

        def work(first: int, after: int) -> None:
            paths = make_paths(self._longest_piece, self._longest_piece)
            given = self._data, self._offsets, pieces, frequencies, total
            find_losses(*given, first, after, paths, losses)

        self._in_parts(work, np.linspace(0, losses.shape[0], _NUM_PARTS + 1).astype(np.int64))
        return losses

    def _drop(self) -> None:
        alive = np.isfinite(self.scores).astype(np.uint8)
        self._edges = self._edges[: drop_edges(alive, self._starts, self._edges)]

    def _over_text(self, work: Callable[[int, int], Any]) -> list[Any]:
        """Do work on each part of the text; return the results in order."""
        wanted = np.linspace(0, self._text.data.shape[0], _NUM_PARTS + 1)
        return self._in_parts(work, np.searchsorted(self._text.offsets, wanted))

    def _in_parts(self, work: Callable[[int, int], Any], cuts: NDArray[np.int64]) -> list[Any]:
        raise_if_stopped()
        parts = list(zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True))
        if self._num_threads == 1:
            return [work(*part) for part in parts]
        with ThreadPoolExecutor(self._num_threads) as pool:
            return list(pool.map(within_limit(work), *zip(*parts, strict=True)))
