"""A place in the endless walk through a dataset's epochs, and the state dict that keeps it.

A place is (epoch, position): so many epochs are over, and of this one so many positions have been given out
to all ranks together. It says nothing of ranks, workers or batch size, which may be others when a run goes
on. A state is JSON: whole numbers, texts, true and false.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokmill.tasks.core.errors import LoadingError

STATE_FORMAT = 1
_NUMBERS = ("format", "num_sequences", "seed", "epoch", "position")


@dataclass(frozen=True)
class Place:
    """Where in which epoch; both count from 0."""

    epoch: int
    position: int = 0


@dataclass(frozen=True)
class Walk:
    """What a place is a place in: it must be the same when a run goes on.

    Attributes:
        digest: of the packed artifact.
        num_sequences: that it has.
        shuffle, seed: what decides the order of an epoch.
        predecessors: digests of artifacts whose sequences had the same numbers (before a takedown), so that
            their places are places here.
        origin: digest of the artifact that this one is an export of, if it is one: places in it, and in all
            of its exports, are the same.
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
        """The place that a state dict keeps.

        Raises:
            LoadingError: it is no state, or one of another dataset, shuffling or seed.
        """
        _check_form(state)
        known = {self.digest, self.origin, *self.predecessors} - {None}
        if not known & {state["dataset"], state.get("origin")}:
            raise LoadingError(
                f"loading: the state is of the dataset {state['dataset'][:16]} "
                f"({state['num_sequences']} sequences), this one is {self.digest[:16]} "
                f"({self.num_sequences} sequences); open the artifact that the state was taken of"
            )
        for name in ("num_sequences", "shuffle", "seed"):
            if state[name] != getattr(self, name):
                raise LoadingError(
                    f"loading: the state was taken with {name}={state[name]}, and this dataset has "
                    f"{name}={getattr(self, name)}; open it with {name}={state[name]} to go on in that order"
                )
        if not (0 <= state["position"] < self.num_sequences and state["epoch"] >= 0):
            raise LoadingError(
                f"loading: the state's epoch={state['epoch']}, position={state['position']} is no place "
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
            f"loading: this is no state of a PackedDataset: {', '.join(wrong)} missing or of another type; "
            "give load_state_dict() what state_dict() returned"
        )
    if state["format"] != STATE_FORMAT:
        raise LoadingError(
            f"loading: the state has format {state['format']}, and this tokmill reads {STATE_FORMAT}; use "
            "the tokmill that wrote it"
        )
