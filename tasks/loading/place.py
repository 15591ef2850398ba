"""The place of a loader: epoch and position, and the state dict that saves it.

A place is (epoch, position): the number of finished epochs, and the number of positions of the current epoch
that all ranks together have consumed. It does not depend on ranks, workers or batch size, which may change
when a run resumes. A state is JSON: whole numbers, texts, true and false.
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

STATE_FORMAT = 1
_NUMBERS = ("format", "num_sequences", "seed", "epoch", "position")
_WIDTH = {"uint16": 2, "uint32": 4}


@dataclass(frozen=True)
class Place:
    """Epoch and position; both count from 0."""

    epoch: int
    position: int = 0


@dataclass(frozen=True)
class Walk:
    """The order of sequences that places refer to; it must be the same when a run resumes.

    Attributes:
        digest: digest of the packed artifact.
        num_sequences: number of its sequences.
        shuffle, seed: parameters of the order of an epoch.
        predecessors: digests of artifacts whose sequences had the same numbers (before a takedown), so that
            their places are valid here.
        origin: digest of the artifact that this one was exported from, or None: places in it, and in all
            its exports, are the same.
    """

    digest: str
    num_sequences: int
    shuffle: bool
    seed: int
    predecessors: frozenset[str] = frozenset()
    origin: str | None = None

    def state(self, place: Place) -> dict[str, Any]:
        """The state dict of a place."""
        return {
            "format": STATE_FORMAT,
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
        _check_form(state)
        known = {self.digest, self.origin, *self.predecessors} - {None}
        if not known & {state["dataset"], state.get("origin")}:
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


def _check_form(state: Mapping[str, Any]) -> None:
    wrong = [name for name in _NUMBERS if type(state.get(name)) is not int]
    wrong += [
        name for name, kind in (("dataset", str), ("shuffle", bool)) if type(state.get(name)) is not kind
    ]
    if wrong:
        raise LoadingError(
            f"loading: this is not the state of a PackedDataset: {', '.join(wrong)} missing or mistyped; "
            "pass load_state_dict() the result of state_dict()"
        )
    if state["format"] != STATE_FORMAT:
        raise LoadingError(
            f"loading: the state has format {state['format']}, and this tokmill reads {STATE_FORMAT}; use "
            "the tokmill that wrote it"
        )


@dataclass(frozen=True)
class CheckedArtifact:
    """The digests by which a loader's place recognizes a packed artifact.

    Attributes:
        digest: the content digest, or without a record a digest of its manifest and the beginning
            of every shard.
        predecessors: digests of artifacts whose sequences had the same numbers.
        origin: digest of the artifact that it was exported from, whose sequences are the same.
    """

    digest: str
    predecessors: frozenset[str] = frozenset()
    origin: str | None = None


def checked_artifact(path: Path, manifest: PackedManifest) -> CheckedArtifact:
    """Compare the sizes of an artifact's files with its record, and return its digests.

    The directory may have any path and name, and may have been copied without `record.json`. Then sizes are
    compared with the manifest, and digests cannot be checked.

    Raises:
        StoreError: a file is missing, or has another size.
    """
    if not (path / RECORD_FILE).is_file():
        return CheckedArtifact(_unrecorded(path, manifest), frozenset(manifest.predecessors), manifest.origin)
    record = read_record(path)
    for name, message in file_damages(path, record, full=False):
        raise StoreError(f"{path / name}: {message}; copy the artifact again, or make it again")
    takedown = TakedownManifest.found(path)
    earlier = {*manifest.predecessors, *(takedown.predecessors if takedown else ())}
    return CheckedArtifact(record.content_digest, frozenset(earlier), manifest.origin)


def _unrecorded(path: Path, manifest: PackedManifest) -> str:
    found = hashlib.blake2b((path / PackedManifest.FILE).read_bytes(), digest_size=32)
    for shard in manifest.shards:
        is_plain = "memmap" in manifest.formats
        file = formats_of(manifest.formats)[0].paths(path, shard.index)[0]
        _check_size(file, shard.num_sequences * manifest.sequence_length * _WIDTH[manifest.dtype], is_plain)
        with file.open("rb") as tokens:
            found.update(tokens.read(1 << 12))
    return found.hexdigest()


def _check_size(file: Path, expected: int, is_plain: bool) -> None:
    """Reject a file whose size does not match its tokens; a file that is not plain also has a header."""
    size = file.stat().st_size if file.is_file() else 0
    if size < expected or (is_plain and size > expected):
        raise StoreError(f"{file}: {size} bytes must be {expected}; copy the artifact again")
