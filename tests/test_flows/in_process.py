"""Runs profiles without Prefect: makes the artifacts in this process, one after the other."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tokmill.flows.profile import load_profile
from tokmill.flows.run.composition import compose
from tokmill.flows.run.dag import Node, walk
from tokmill.flows.run.sources import resolve_sources
from tokmill.tasks.store import Store


@dataclass(frozen=True)
class InProcess:
    """A store, and runs on it."""

    store: Store

    @classmethod
    def at(cls, folder: Path) -> "InProcess":
        """Return runs on a store in a folder."""
        return cls(Store.open(folder))

    def run(self, profile: str | Path, *overrides: str) -> Mapping[str, Node]:
        """Make all artifacts of a profile; return them by kind."""
        loaded = load_profile(profile, overrides)
        dag = compose(loaded, resolve_sources(loaded, self.store), self.store.path)
        return dag.artifacts(walk(dag.jobs, lambda step: self.store.realize(step.request()).ref))
