"""The place of a loader: epoch and position, and the state dict that saves it.

A place is the number of finished epochs, and that of the positions of the current one that all ranks together
have consumed. It does not depend on ranks, workers or batch size. A state is JSON: whole numbers, texts, true
and false.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokmill.tasks.core.errors import LoadingError, StoreError
from tokmill.tasks.formats.packed.manifest import PackedManifest, TakedownManifest
from tokmill.tasks.formats.packed.shard_format import formats_of
from tokmill.tasks.store.layout import RECORD_FILE
from tokmill.tasks.store.record import read_record
from tokmill.tasks.store.verify import file_damages

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

        The directory may have any path and name. Without a record sizes are compared with the manifest, and
        the digest is one of the manifest and the beginning of every shard.

        Raises:
            StoreError: a file is missing, or has another size.
        """
        earlier = set(manifest.predecessors)
        if (path / RECORD_FILE).is_file():
            record = read_record(path)
            for name, message in file_damages(path, record, full=False):
                raise StoreError(f"{path / name}: {message}; copy the artifact again, or make it again")
            takedown = TakedownManifest.of(path)
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
        """The place that is saved in a state dict.

        Raises:
            LoadingError: it is not a state, or one of another dataset, shuffling or seed.
        """
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
