"""Runs without Prefect: what a profile asks for, made in this process one artifact after the other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokmill.flows.profile import load_profile
from tokmill.flows.run.composition import Composition, Node, Step
from tokmill.flows.run.sources import resolve_sources
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store import Store


@dataclass(frozen=True)
class InProcess:
    """An executor that makes artifacts here; see `flows.run.composition.Executor`."""

    store: Store

    @classmethod
    def at(cls, folder: Path) -> "InProcess":
        """With the store in a folder."""
        return cls(Store.open(folder))

    def one(self, step: Step) -> Node:
        """Make one artifact."""
        return self.store.realize(step.request()).ref

    def each(self, steps: Sequence[Step]) -> Sequence[Node]:
        """Make some, one after the other."""
        return [self.one(step) for step in steps]

    def path(self, node: ArtifactRef) -> Path:
        """Where an artifact's files are."""
        return self.store.path(node)

    def run(self, profile: str | Path, *overrides: str) -> Mapping[str, Node]:
        """Make everything that a profile asks for, by kind."""
        loaded = load_profile(profile, overrides)
        return Composition(loaded, self, resolve_sources(loaded, self.store)).build()
