"""A dataset of a packed artifact: batches of one epoch after another.

A dataset is like an open file: it has a place, and iterating yields batches from there on to the end of the
epoch. Every sequence of an epoch comes exactly once over all ranks and workers, except for `remainder`.
"""

import os
import weakref
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tokmill.tasks.core.errors import LoadingError
from tokmill.tasks.formats.packed.manifest import PackedManifest
from tokmill.tasks.loading.batches import Batch, Block, Dtype, Field, Memory, Wanted, check_bounds, made
from tokmill.tasks.loading.rows import PackedRows, fetch_descriptions, read_ahead
from tokmill.tasks.loading.split import Order, Place, Remainder, RowLengths, Split, Walk
from tokmill.tasks.store.naming import artifact_folder

if TYPE_CHECKING:
    from tokmill.tasks.loading.torch_dataset import TorchDataset

_BLOCK_BYTES = 4 << 20  # of all fields: larger blocks exceed caches, smaller ones cost too much Python time
_MOST_BLOCKS = 16  # handed to a thread at a time
_LOOK_AHEAD = 4096  # sequences to look up in the epoch's order at a time


class PackedDataset:
    """Batches of packed sequences for one rank; iterate it once per epoch.

    Args:
        path: its directory, or its name in a store, e.g. `packed/name` or `packed/name@v3`.
        batch_size: sequences per batch, of this rank alone.
        fields: fields of a batch besides `sequence`; see `tasks.loading.batches`.
        dtype: dtype of `input_ids`: 'stored' (uint16 or uint32), or int32 or int64.
        sequence_lengths: a curriculum of lengths, `[(0, 512), (100_000, 2048)]`: from a number of
            sequences of the run on, sequences are read as rows of a length that must divide the packing's
            own. Batches keep their tokens and have more, shorter rows. By default a sequence is one row.
        shuffle: whether each epoch has a new order; otherwise every epoch has the artifact's order.
        seed: seed of the orders; a whole number from 0.
        rank: number of this process among those that train together, from 0.
        world_size: number of these processes.
        remainder: how to treat the last, partial step of an epoch: 'keep' spreads it over the ranks,
            'drop' leaves it out, 'wrap' fills it up from the epoch's beginning.
        num_threads: threads that read ahead, which helps with slow disks or networks; batches are made
            on demand, at the memory's pace.
        prefetch: the most batches whose tokens are read ahead.
        verify: whether to compare a shard's digests with the record when it is first read, which takes a
            second of CPU time per 1.3 GB, once per process. The sizes of all files are always compared.
        store: store in which to look up a name; by default TOKMILL_STORE, or `tokmill-store` in the
            working directory.

    Attributes:
        manifest: the content of `packed.json`.
        split: this rank's part.

    Raises:
        LoadingError: an argument is out of range, there is no store to look a name up in, a batch has
            more tokens than `cu_seqlens` can count, or the artifact lacks the memmap format.
        StoreError: the artifact is missing or damaged.
    """

    def __init__(  # noqa: PLR0913 - each is an option of its own, said by its name
        self,
        path: str | Path,
        *,
        batch_size: int = 8,
        fields: Sequence[Field] = ("input_ids",),
        dtype: Dtype = "stored",
        sequence_lengths: Sequence[tuple[int, int]] = (),
        shuffle: bool = False,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        remainder: Remainder = "keep",
        num_threads: int = 1,
        prefetch: int | None = None,
        verify: bool = True,
        store: str | Path | None = None,
    ) -> None:
        self.path = artifact_folder("packed", path, store)
        fetch_descriptions(self.path)
        self.manifest = PackedManifest.open(self.path)
        self.split = Split(batch_size, rank, world_size, remainder=remainder)
        self._wanted = Wanted(tuple(fields), dtype)
        check_bounds(self._wanted, batch_size, self.manifest.sequence_length)
        limits = {"seed": (seed, 0), "num_threads": (num_threads, 0), "prefetch": (prefetch, 1)}
        for name, (value, least) in limits.items():
            if value is not None and value < least:
                raise LoadingError(f"loading: {name}={value} must be at least {least}")
        self._num_threads, self._prefetch = num_threads, prefetch
        self._lengths = RowLengths(self.manifest.sequence_length, tuple(sequence_lengths))
        self._rows = PackedRows(self.path, self.manifest, verify=verify)
        self._order = Order(self.num_sequences, shuffle, seed)
        self._walk = Walk.of(self.path, self.manifest, shuffle, seed)
        self._place = Place(0)
        self._running: tuple[int, weakref.ref[Generator[Batch, None, None]]] | None = None

    @property
    def num_sequences(self) -> int:
        """Number of sequences per epoch, of all ranks together."""
        return self.manifest.num_sequences

    def __len__(self) -> int:
        """Number of batches of this rank in a whole epoch."""
        return self.split.num_batches(self.num_sequences)

    @property
    def num_batches(self) -> int:
        """Number of batches of this rank from here to the end of the epoch."""
        return self.split.num_batches(self.num_sequences - self._place.position)

    @property
    def epoch(self) -> int:
        """The epoch of the next batch, from 0."""
        return self._place.epoch

    @property
    def position(self) -> int:
        """Number of sequences of this epoch that all ranks together have consumed."""
        return self._place.position

    def set_epoch(self, epoch: int) -> None:
        """Go to the beginning of an epoch; does nothing if it is the current one.

        Raises:
            LoadingError: it is below 0.
        """
        if epoch < 0:
            raise LoadingError(f"loading: epoch={epoch} must be at least 0")
        if epoch != self._place.epoch:
            self.close()
            self._place = Place(epoch)

    def state_dict(self, num_batches: int | None = None) -> dict[str, Any]:
        """The state to resume from after the last yielded batch, for `load_state_dict`; it is JSON.

        Args:
            num_batches: batches taken since the beginning of the iteration, if not from this object:
                the worker processes of a `DataLoader` iterate over copies.
        """
        moved = num_batches is not None
        return self._walk.state(self._after(self._place, num_batches or 0) if moved else self._place)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to the place of a state; ranks, workers and batch size may differ from those of the state.

        Raises:
            LoadingError: it is not a state, or belongs to another dataset, shuffling or seed.
        """
        place = self._walk.place(state)
        self.close()
        self._place = place

    def for_worker(self, worker: int, num_workers: int) -> "PackedDataset":
        """A copy of this dataset, at the same place, for one of several workers of its rank.

        Raises:
            LoadingError: the worker's number is out of range.
        """
        # A new `PackedRows`: this process may be a fork in which another thread was just opening a shard.
        rows = self._rows.reopened()
        return self._copy(_rows=rows, split=replace(self.split, worker=worker, num_workers=num_workers))

    def to_torch(self) -> "TorchDataset":
        """A copy of the dataset as a `torch.utils.data.IterableDataset` of tensors; imports torch.

        Tokens stored as unsigned integers become int64, as embeddings require.

        Raises:
            LoadingError: torch is not installed.
        """
        try:
            from tokmill.tasks.loading.torch_dataset import TorchDataset
        except ModuleNotFoundError as error:
            raise LoadingError(
                f"loading: torch is needed for this ({error}); install torch, or use the numpy batches"
            ) from error
        dtype = "int64" if self._wanted.dtype == "stored" else self._wanted.dtype
        return TorchDataset(self._copy(_wanted=replace(self._wanted, dtype=dtype)))

    def _copy(self, **changed: object) -> "PackedDataset":
        copied = self.__class__.__new__(self.__class__)
        copied.__dict__ |= self.__getstate__() | changed
        return copied

    def close(self) -> None:
        """End the current iteration and its threads; another one may begin."""
        if self._running is not None:
            process, reference = self._running
            running = reference()
            if running is not None and process == os.getpid():  # a fork has no threads to end
                running.close()
            self._running = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        """A copy has the same place, and no current iteration."""
        return self.__dict__ | {"_running": None}

    def __iter__(self) -> Iterator[Batch]:
        """Yield the rest of the epoch; ends any current iteration."""
        self.close()
        running = self._given_out()
        self._running = (os.getpid(), weakref.ref(running))
        return running

    def _given_out(self) -> Generator[Batch, None, None]:
        start, num_given = self._place, 0
        per_block = self._batches_per_block()
        self._rows.follow(block.sequences for block in self._blocks(start, per_block))
        blocks = self._blocks(start, per_block)
        if self._num_threads:
            blocks = self._read_ahead(blocks, per_block)
        memory = Memory(2)  # the loop may still hold the block before
        try:
            for block in blocks:
                for batch in made(block, self._rows, self._wanted, memory):
                    num_given += 1
                    self._place = self._after(start, num_given * self.split.num_workers)
                    yield batch
        finally:
            blocks.close()
            self._rows.stop()
        self._place = Place(start.epoch + 1)

    def _read_ahead(self, blocks: Iterable[Block], per_block: int) -> Generator[Block, None, None]:
        def touch(listed: list[Block]) -> None:
            sequences = np.concatenate([block.sequences for block in listed])
            self._rows.touch(sequences[:: len(listed)])  # a sample, as lists are long if all is in memory

        ahead, most = self._num_threads + 1, _MOST_BLOCKS
        if self._prefetch is not None:
            ahead = max(1, min(ahead, self._prefetch // per_block))
            most = max(1, min(most, self._prefetch // (per_block * ahead)))
        return read_ahead(touch, blocks, num_threads=self._num_threads, ahead=ahead, most=most)

    def _blocks(self, start: Place, per_block: int) -> Generator[Block, None, None]:
        num_left = self.num_sequences - start.position
        per_look = max(1, _LOOK_AHEAD // (per_block * self.split.batch_size)) * per_block
        steps = self.split.steps(num_left)
        for first in range(0, len(steps), per_look):
            runs = [self.split.positions(step, num_left) for step in steps[first : first + per_look]]
            positions = np.concatenate([np.arange(run.start, run.stop, dtype=np.int64) for run in runs])
            sequences = self._order.sequences(start.epoch, (start.position + positions) % self.num_sequences)
            begins = np.array(steps[first : first + per_look], dtype=np.int64) * self.split.stride
            parts = self._lengths.parts(start.epoch * self.num_sequences + start.position + begins)
            changes = (np.flatnonzero(np.diff(parts)) + 1).tolist()
            at = 0
            for k, stop in pairwise(sorted({*range(0, len(runs), per_block), *changes, len(runs)})):
                sizes = tuple(len(run) for run in runs[k:stop])
                yield Block(sequences[at : at + sum(sizes)], sizes, int(parts[k]))
                at += sum(sizes)

    def _batches_per_block(self) -> int:
        if self._order.shuffle and self._rows.are_arriving:
            return 1  # a block needs nearly as many shards as it has sequences
        row_bytes = self.manifest.sequence_length * self._wanted.token_bytes(self._rows.dtype)
        enough = -(-_BLOCK_BYTES // (row_bytes * self.split.batch_size))
        if self._prefetch is None:
            return enough
        return max(1, min(enough, self._prefetch // (2 * max(1, self._num_threads))))

    def _after(self, start: Place, num_steps: int) -> Place:
        position = start.position + num_steps * self.split.stride
        over = self.split.is_over(self.num_sequences - position)
        return Place(start.epoch + 1) if over else Place(start.epoch, position)
