"""Runs profiles without Prefect: makes the artifacts in this process, one after the other."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from tokmill.flows.profile import load_profile
from tokmill.flows.run.composition import compose
from tokmill.flows.run.dag import Dag, Node, walk
from tokmill.flows.run.events import Event, RunState
from tokmill.flows.run.sources import resolve_sources
from tokmill.flows.run.sweeping import Grid, compose_sweep
from tokmill.tasks.store import Store
from tokmill.tasks.sweep.params import SweepParams


class Noting:
    """Keeps the notes of a run."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def __call__(self, event: Event, state: RunState) -> None:
        """Keep one."""
        if event.what == "noted":
            self.notes.append(event.text)


@dataclass(frozen=True)
class InProcess:
    """A store, and runs on it."""

    store: Store

    @classmethod
    def at(cls, folder: Path) -> "InProcess":
        """Return runs on a store in a folder."""
        return cls(Store.open(folder))

    def run(self, profile: str | Path, *overrides: str, until: Collection[str] = ()) -> Mapping[str, Node]:
        """Make all artifacts of a profile, or those of some kinds and what they need; return them by kind."""
        loaded = load_profile(profile, overrides)
        return self._made(compose(loaded, resolve_sources(loaded, self.store), self.store.path, until))

    def sweep(
        self, profile: str | Path, grid: Grid, *overrides: str, model: SweepParams | None = None
    ) -> Mapping[str, Node]:
        """Make all artifacts of a sweep."""
        loaded = load_profile(profile, overrides)
        sources = resolve_sources(loaded, self.store)
        return self._made(compose_sweep(loaded, grid, model or SweepParams(), sources, self.store.path))

    def _made(self, dag: Dag) -> Mapping[str, Node]:
        return dag.artifacts(walk(dag.jobs, lambda step: self.store.realize(step.request()).ref))
