"""Fit pieces to a text: expectation maximization, and pruning until few enough are left.

A round has two sub-iterations of EM; then the pieces whose removal loses least are removed, a quarter of
them, until 1.1 times as many as wanted are left. The text and the pieces are cut into parts that do not
depend on the number of threads, and their sums are added in order, so the result does not depend on it.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.core.buffers import pack_bytes
from tokmill.tokenizer.core.stopping import raise_if_stopped, within_limit
from tokmill.tokenizer.pipeline.model import Progress
from tokmill.tokenizer.unigram.encoder import lay_out
from tokmill.tokenizer.unigram.kernels.expectation import (
    STEPS,
    Sums,
    drop_edges,
    expect,
    list_edges,
    maximize,
)
from tokmill.tokenizer.unigram.kernels.lattice import make_found, make_paths
from tokmill.tokenizer.unigram.kernels.selection import count_best, find_losses
from tokmill.tokenizer.unigram.seeding import Seeds, TrainingText

NUM_SUB_ITERATIONS = 2
MARGIN = 1.1
_NUM_PARTS = 8


class UnigramTrainer:
    """The pieces of a training, by the order of their bytes, with their scores so far.

    Attributes:
        scores: float64, shape (num_seeds,), rounded (`kernels.expectation`); -inf for removed ones.
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
        (`unigram.huggingface`), so that equal sums are decided alike.
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
