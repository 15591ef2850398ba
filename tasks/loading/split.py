"""Divide the positions of an epoch among ranks and workers, and order and shape its sequences.

A step takes `batch_size` × `world_size` positions, of which rank r has the r-th `batch_size`; within a rank,
worker w of W makes the batches w, w + W, … So a single number, the position in the epoch, is enough to resume
with another number of ranks or workers, or another batch size.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.core.errors import LoadingError, StoreError
from tokmill.tasks.formats.packed.manifest import PackedManifest, TakedownManifest
from tokmill.tasks.formats.packed.shard_format import formats_of
from tokmill.tasks.mixing.permutation import permutation, permutation_key, permuted
from tokmill.tasks.store.layout import RECORD_FILE
from tokmill.tasks.store.record import read_record
from tokmill.tasks.store.verify import file_damages

Remainder: TypeAlias = Literal["keep", "drop", "wrap"]
_KEPT = 1 << 20  # up to this many sequences an epoch's whole permutation is kept in memory: 8 MB
_SHORTEST = 8


@dataclass(frozen=True)
class Split:
    """One worker's part of every epoch."""

    batch_size: int  # sequences per step and rank; ≥ 1
    rank: int = 0  # in [0, world_size)
    world_size: int = 1
    worker: int = 0  # in [0, num_workers)
    num_workers: int = 1  # workers of this rank
    # How the last, partial step is treated: 'keep' spreads it evenly over the ranks, the lower ones first.
    remainder: Remainder = "keep"

    def __post_init__(self) -> None:
        for name in ("batch_size", "world_size", "num_workers"):
            if getattr(self, name) < 1:
                raise LoadingError(f"loading: {name}={getattr(self, name)} must be at least 1")
        for one, all_of_them in (("rank", "world_size"), ("worker", "num_workers")):
            value, number = getattr(self, one), getattr(self, all_of_them)
            if not 0 <= value < number:
                raise LoadingError(
                    f"loading: {one}={value} must be in [0, {number}), as {all_of_them}={number}; they count "
                    "from 0"
                )
        if self.remainder not in get_args(Remainder):
            raise LoadingError(
                f"loading: remainder={self.remainder!r} must be one of {', '.join(get_args(Remainder))}"
            )

    @property
    def stride(self) -> int:
        """Positions that a step takes, all ranks together."""
        return self.batch_size * self.world_size

    def num_batches(self, num_left: int) -> int:
        """Number of batches of this rank (all its workers) in the last `num_left` positions."""
        full, rest = divmod(num_left, self.stride)
        first, stop = self._share(rest)
        return full + int(stop > first)

    def steps(self, num_left: int) -> range:
        """The steps of this worker, counted from the point at which `num_left` positions remain."""
        return range(self.worker, self.num_batches(num_left), self.num_workers)

    def positions(self, step: int, num_left: int) -> range:
        """This rank's positions in a step, counted in the same way; `wrap` may exceed `num_left`."""
        begin = step * self.stride
        if begin + self.stride <= num_left:
            first, stop = self.rank * self.batch_size, (self.rank + 1) * self.batch_size
        else:
            first, stop = self._share(num_left - begin)
        return range(begin + first, begin + stop)

    def is_over(self, num_left: int) -> bool:
        """Whether no rank gets another batch in this epoch."""
        return num_left <= 0 or (self.remainder == "drop" and num_left < self.stride)

    def _share(self, rest: int) -> tuple[int, int]:
        """This rank's part of the last, partial step of `rest` positions: [first, stop)."""
        if rest == 0 or self.remainder == "drop":
            return 0, 0
        if self.remainder == "wrap":
            return self.rank * self.batch_size, (self.rank + 1) * self.batch_size
        each, over = divmod(rest, self.world_size)
        first = self.rank * each + min(self.rank, over)
        return first, first + each + int(self.rank < over)


class Order:
    """The orders of all epochs of `size` sequences."""

    def __init__(self, size: int, shuffle: bool, seed: int) -> None:
        self.size = size
        self.shuffle = shuffle
        self.seed = seed
        self._whole = lru_cache(maxsize=1)(lambda epoch: permutation(self.size, self._key(epoch)))

    def __reduce__(self) -> tuple[type["Order"], tuple[int, bool, int]]:
        return Order, (self.size, self.shuffle, self.seed)

    def sequences(self, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The sequences at `positions`, int64 [n] in [0, size), of an epoch; int64 [n]."""
        if not self.shuffle:
            return positions
        if self.size <= _KEPT:
            return self._whole(epoch)[positions]
        return permuted(positions, self.size, self._key(epoch))

    def _key(self, epoch: int) -> tuple[int, ...]:
        return permutation_key("loading", self.seed, epoch)


@dataclass(frozen=True)
class RowLengths:
    """The lengths of rows as which sequences are read, over a run: short ones first (Li, Zhang, He 2022).

    A sequence of L tokens is read as k rows of L / k, each a sequence of its own. Batches keep their tokens,
    so that the cost of a step and the meaning of a place do not depend on the length, and no token is lost.

    Raises:
        LoadingError: the first point is not at 0, they are out of order, or a length does not divide the
            packing's own.
    """

    sequence_length: int  # tokens of the packing's own sequences
    points: Sequence[tuple[int, int]] = ()  # from which sequence of the run on, which length; none: their own

    def __post_init__(self) -> None:
        starts = [start for start, _ in self.points]
        if starts and starts[0] != 0:
            raise LoadingError(f"loading: sequence_lengths begin at {starts[0]}; the first must be at 0")
        for before, start in pairwise(starts):
            if start <= before:
                raise LoadingError(
                    f"loading: sequence_lengths have {start} after {before}; starts must ascend, in "
                    "sequences since the beginning of the run"
                )
        for _, length in self.points:
            if length < _SHORTEST or self.sequence_length % length:
                raise LoadingError(
                    f"loading: sequence_lengths have {length}, which must be at least {_SHORTEST} and divide "
                    f"the packing's own {self.sequence_length}"
                )

    def parts(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Number of rows per sequence at these positions, counted in sequences of the run: int64 [n]."""
        starts, lengths = np.array(self.points or [(0, self.sequence_length)], dtype=np.int64).T
        return np.asarray(self.sequence_length // lengths[np.searchsorted(starts, positions, "right") - 1])


_STATE_FORMAT = 1
_NUMBERS = ("format", "num_sequences", "seed", "epoch", "position")
_TYPES: dict[str, type] = dict.fromkeys(_NUMBERS, int) | {"dataset": str, "shuffle": bool}


@dataclass(frozen=True)
class Place:
    """Epoch and position; both count from 0."""

    epoch: int
    position: int = 0


@dataclass(frozen=True)
class Walk:
    """The order of sequences that places refer to; it must be the same when a run resumes."""

    num_sequences: int
    shuffle: bool
    seed: int
    digest: str  # of the packed artifact
    # digests of artifacts whose sequences have the same numbers: before a takedown, or in exports of this one
    equals: frozenset[str | None] = frozenset()
    origin: str | None = None  # digest of the artifact that this one was exported from

    @classmethod
    def of(cls, path: Path, manifest: PackedManifest, shuffle: bool, seed: int) -> "Walk":
        """The walk through an artifact, the sizes of whose files are compared with its record.

        The directory may have any path and name. Without a record sizes are compared with the manifest.
        """
        earlier = set(manifest.predecessors)
        if (path / RECORD_FILE).is_file():
            record = read_record(path)
            for name, message in file_damages(path, record, full=False):
                raise StoreError(f"{path / name}: {message}; copy the artifact again, or make it again")
            takedown = TakedownManifest.found(path)
            earlier |= {*(takedown.predecessors if takedown else ())}
            digest = record.content_digest
        else:
            digest = _digest_without_record(path, manifest)
        equals = frozenset({digest, manifest.origin, *earlier} - {None})
        return cls(manifest.num_sequences, shuffle, seed, digest, equals, manifest.origin)

    def state(self, place: Place) -> dict[str, Any]:
        """The state dict of a place."""
        return {
            "format": _STATE_FORMAT,
            "dataset": self.digest,
            "origin": self.origin,
            "num_sequences": self.num_sequences,
            "shuffle": self.shuffle,
            "seed": self.seed,
            "epoch": place.epoch,
            "position": place.position,
        }

    def place(self, state: Mapping[str, Any]) -> Place:
        """The place that is saved in a state dict."""
        wrong = [name for name, kind in _TYPES.items() if type(state.get(name)) is not kind]
        if wrong:
            raise LoadingError(
                f"loading: this is not the state of a PackedDataset: {', '.join(wrong)} missing or mistyped; "
                "pass load_state_dict() the result of state_dict()"
            )
        if state["format"] != _STATE_FORMAT:
            raise LoadingError(
                f"loading: the state has format {state['format']}, and this tokmill reads {_STATE_FORMAT}; "
                "use the tokmill that wrote it"
            )
        if not self.equals & {state["dataset"], state.get("origin")}:
            raise LoadingError(
                f"loading: the state is of the dataset {state['dataset'][:16]} "
                f"({state['num_sequences']} sequences), this one is {self.digest[:16]} "
                f"({self.num_sequences} sequences); open the artifact that the state was taken from"
            )
        for name in ("num_sequences", "shuffle", "seed"):
            if state[name] != getattr(self, name):
                raise LoadingError(
                    f"loading: the state was taken with {name}={state[name]}, but this dataset has "
                    f"{name}={getattr(self, name)}; open it with {name}={state[name]} to continue"
                )
        if not (0 <= state["position"] < self.num_sequences and state["epoch"] >= 0):
            raise LoadingError(
                f"loading: the state's epoch={state['epoch']}, position={state['position']} is not a place "
                f"among {self.num_sequences} sequences; the state is damaged"
            )
        return Place(state["epoch"], state["position"])


def _digest_without_record(path: Path, manifest: PackedManifest) -> str:
    digest = hashlib.blake2b((path / PackedManifest.FILE).read_bytes(), digest_size=32)
    is_plain = "memmap" in manifest.formats  # a file of the other format also has a header
    for shard in manifest.shards:
        file = formats_of(manifest.formats)[0].paths(path, shard.index)[0]
        size = file.stat().st_size if file.is_file() else 0
        expected = shard.num_sequences * manifest.sequence_length * manifest.token_dtype.itemsize
        if size < expected or (is_plain and size > expected):
            raise StoreError(f"{file}: {size} bytes must be {expected}; copy the artifact again")
        with file.open("rb") as tokens:
            digest.update(tokens.read(1 << 12))
    return digest.hexdigest()
