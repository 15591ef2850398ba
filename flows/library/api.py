"""`tokmill.run`, `plan` and `sweep`, which the commands of these names call too."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias, Unpack

from tokmill.flows.errors import UsageError, suggestion
from tokmill.flows.figures import key_figures, span
from tokmill.flows.library.artifact import Artifact
from tokmill.flows.library.notebook import in_notebook, shown
from tokmill.flows.library.options import RunOptions, Settings
from tokmill.flows.library.store import Store, opened
from tokmill.flows.library.table import Table
from tokmill.flows.prefect.server import start_early, started_early
from tokmill.flows.prefect.settings import has_a_server
from tokmill.flows.profile import Profile, load_profile, profile_of
from tokmill.flows.profile.load import parse_override
from tokmill.flows.results import RunResult, wall_seconds
from tokmill.flows.run.direct import reused, run_directly
from tokmill.flows.run.events import Listener, RunState, noting_warnings
from tokmill.flows.run.machine import Machine, store_url, writable_store
from tokmill.flows.run.planning import PlanRow, plan_target
from tokmill.flows.run.sweeping import curves_of, grid_of
from tokmill.flows.run.target import Target
from tokmill.tasks.store import Store as ArtifactStore
from tokmill.tasks.sweep.recommendation import SweepParams
from tokmill.tokenizer.core import markup

AnyProfile: TypeAlias = str | Path | Profile | Mapping[str, Any]
AnyStore: TypeAlias = str | Path | ArtifactStore
Overrides: TypeAlias = Iterable[str] | Mapping[str, Any]


@dataclass(frozen=True)
class FinishedRun(RunResult):
    """A run that succeeded, with what it made.

    `run["tokenizer"]` is the artifact of that kind; `"tokenizer" in run`, iteration over kinds.

    Attributes:
        store: the store of the artifacts.
        profile: the profile as it was run.
    """

    store: Store
    profile: Profile

    @cached_property
    def artifacts(self) -> Mapping[str, Artifact]:
        """Kind → artifact, without those of single shards."""
        return {kind: Artifact(self.store, ref) for kind, ref in self.refs.items()}

    @property
    def figures(self) -> Mapping[str, Mapping[str, Any]]:
        """Kind → metrics of the run's artifact."""
        return {kind: artifact.figures for kind, artifact in self.artifacts.items()}

    @property
    def paths(self) -> Mapping[str, Path]:
        """Kind → folder of the run's artifact."""
        return {kind: artifact.path for kind, artifact in self.artifacts.items()}

    @property
    def tasks(self) -> Table:
        """One row per task: title, artifact, how it was got (made, cached, waited), seconds."""
        rows = [
            {
                "task": row.task,
                "artifact": f"{row.ref.kind}/{row.ref.name}",
                "how": row.how,
                "seconds": row.seconds,
                "fingerprint": row.ref.fingerprint,
            }
            for row in self.rows
        ]
        return Table.of(rows, "Tasks")

    def __getitem__(self, kind: str) -> Artifact:
        if kind not in self.artifacts:
            raise KeyError(f"the run made no {kind!r}; it made {', '.join(self.artifacts)}")
        return self.artifacts[kind]

    def __contains__(self, kind: object) -> bool:
        return kind in self.refs

    def __iter__(self) -> Iterator[str]:
        return iter(self.refs)

    def __repr__(self) -> str:
        return f"FinishedRun({self.profile.name!r}, {self._outcome()}, kinds={list(self.refs)})"

    def _outcome(self) -> str:
        waited = f", {self.num_waited} waited for" if self.num_waited else ""
        return f"{self.num_made} made, {self.num_cached} cached{waited}"

    def _repr_html_(self) -> str:
        how = {row.ref: row.how for row in self.rows}
        rows = [
            (kind, each.reference, how.get(each.ref, ""), key_figures(kind, each.figures))
            for kind, each in self.artifacts.items()
        ]
        detail = f"{self._outcome()}, {span(wall_seconds(self.rows))}" if self.rows else ""
        table = markup.grid(("kind", "artifact", "result", "figures"), rows)
        return markup.sheet(f"Run of {self.profile.name}", table, detail=detail)


def run(
    profile: AnyProfile,
    *,
    overrides: Overrides = (),
    until: Collection[str] | str = (),
    store: AnyStore | None = None,
    prefect: bool | None = None,
    progress: bool | None = None,
    reporter: Listener | None = None,
    **sections: Unpack[RunOptions],
) -> FinishedRun:
    """Run a profile, from raw text to packed shards; artifacts that are up to date are reused.

        run = tokmill.run("quickstart", pack={"sequence_length": 2048})
        run["packed"].path, run["audit"].figures["bytes_per_token"]

    Every run is in the store's catalog. With Prefect it is tracked by the configured server too, or by an
    embedded one, which ends with this process and is not started for a run that finds everything in the
    store.

    Args:
        profile: a name that ships with tokmill, the path of a TOML file, a loaded profile, or a dict of the
            sections that such a file has.
        overrides: values that replace the profile's own, as in `load_profile`.
        until: kinds of artifacts to make, with what they are made from (`"tokenizer"`); all if empty.
        store: where the artifacts are kept; by default the profile's, TOKMILL_STORE, or `tokmill-store`.
        prefect: whether Prefect runs the stages; else this process does, with the same artifacts. By default
            it does, but not in a notebook, unless a server is configured that others look at.
        progress: whether to show the run's progress; by default in notebooks only, as a table that is drawn
            in its place.
        reporter: called instead with each event and the state of the run, from several threads.
        **sections: sections of the profile whose values replace its own (`train={"vocab_size": 8000}`), and
            settings of the machine that change no result: see `tokmill.flows.library.options.Settings`.

    Returns:
        The artifacts by kind, with paths and figures.

    Raises:
        ProfileError: the profile or an override is invalid.
        UsageError: the store cannot be created or written to, or there is no such section or setting.
        SourceError: a source matches no file, or one file twice.
        ServeError: no Prefect server answers, and none could be embedded.
        RunError: a task failed; artifacts that were published before stay published.
    """
    settings: dict[str, Any] = {
        name: value for name, value in sections.items() if name in Settings.__annotations__
    }
    changed = {name: value for name, value in sections.items() if name not in settings}
    known = [*Profile.model_fields, *Settings.__annotations__]
    for name, value in changed.items():
        if name not in known:
            hint = suggestion(name, known, known_as="sections and settings")
            raise UsageError(f"run: {name}={value!r:.60} is no section of a profile and no setting{hint}")
    target = Target([until] if isinstance(until, str) else until)
    loaded = _loaded(profile, overrides, changed)
    return run_target(
        loaded, target, settings, store=store, prefect=prefect, progress=progress, reporter=reporter
    )


def sweep(  # noqa: PLR0913 - the grid and the model are given by their parts
    profile: AnyProfile,
    *,
    vocab_sizes: Iterable[int] = (),
    temperatures: Iterable[float] = (),
    families: Iterable[str] = (),
    model: SweepParams | None = None,
    overrides: Overrides = (),
    store: AnyStore | None = None,
    prefect: bool | None = None,
    progress: bool | None = None,
    reporter: Listener | None = None,
    **settings: Unpack[Settings],
) -> FinishedRun:
    """Train and measure the tokenizers of a grid; its summary is the artifact of the kind `sweep`.

    The grid has each of `vocab_sizes` with each of `temperatures` (T of the balance) and `families`, or
    the profile's own where there is none; `model` is the model that the tokenizers are for. Of the profile,
    its sources, holdout, training and parallel text are used. All else, and the errors, are those of `run`.

    Raises:
        ProfileError: the profile is invalid, or the grid contradicts it.
    """
    loaded, grid = _loaded(profile, overrides), grid_of(vocab_sizes, temperatures, families)
    curves_of(loaded, grid)
    target = Target(grid=grid, model=model or SweepParams(), word="sweep")
    return run_target(
        loaded, target, settings, store=store, prefect=prefect, progress=progress, reporter=reporter
    )


def plan(
    profile: AnyProfile,
    *,
    overrides: Overrides = (),
    until: Collection[str] = (),
    store: AnyStore | None = None,
    rehash: bool = False,
    reporter: Listener | None = None,
) -> list[PlanRow]:
    """Return what `run` would do with the same arguments, one row per task in the order of the DAG.

    Raises:
        ProfileError: the profile or an override is invalid.
        SourceError: a source matches no file, or one file twice.
    """
    return planned(_loaded(profile, overrides), Target(until), store, rehash=rehash, reporter=reporter)


def planned(
    profile: Profile,
    target: Target,
    store: AnyStore | None,
    *,
    rehash: bool = False,
    reporter: Listener | None = None,
) -> list[PlanRow]:
    """Return what a run for a target would do; see `plan`."""
    state = _state(profile, reporter)
    machine = Machine.of(profile.execution, store=_location(store), rehash=rehash)
    with noting_warnings(state.note):
        return plan_target(profile, target, machine.open_store(), rehash=machine.rehash)


def run_target(
    profile: Profile,
    target: Target,
    settings: Mapping[str, Any],
    *,
    store: AnyStore | None,
    prefect: bool | None = None,
    progress: bool | None = None,
    reporter: Listener | None = None,
) -> FinishedRun:
    """Make what is asked of a profile; `settings` are those of `Settings`, all else as for `run`."""
    location = store_url(_location(store), profile.execution)
    writable_store(location)
    on_prefect = (has_a_server() or not in_notebook()) if prefect is None else prefect
    with shown(progress) if reporter is None else nullcontext(reporter) as told:
        state, machine = _state(profile, told), Machine.of(profile.execution, store=location, **settings)
        result = None
        if not on_prefect:
            result = run_directly(profile, target, machine, state)
        elif not machine.refresh and not has_a_server():
            # Prefect's engine takes longer than a run without work, and is only worth it where people see it
            result = reused(profile, target, machine, state)
        if result is None:
            with _server(machine, state) as run_here:
                result = run_here(profile, target, machine.store, state, settings)
    return FinishedRun(result.run_id, result.rows, result.refs, Store(location), profile)


@contextmanager
def _server(machine: Machine, state: RunState) -> Iterator[Callable[..., RunResult]]:
    """Open a server for a run in this process; yield what runs it.

    To import Prefect takes a second, and a server longer to start.
    """
    state.wait_for("Prefect's server")
    start_early()
    from tokmill.flows.prefect.connection import prefect_server  # noqa: PLC0415
    from tokmill.flows.prefect.flow import run_here  # noqa: PLC0415
    from tokmill.flows.prefect.worker import reconcile  # noqa: PLC0415

    import_module("numba")  # stages need it, and the server still starts
    with prefect_server(state.note, started_early()) as client:
        for name in reconcile(machine.open_store(), client):
            state.note(f"the process of run {name!r} no longer exists; the run is marked as crashed")
        yield run_here


def _loaded(profile: AnyProfile, overrides: Overrides, sections: Mapping[str, Any] | None = None) -> Profile:
    given = overrides if isinstance(overrides, Mapping) else dict(map(parse_override, overrides))
    merged = {**given, **(sections or {})}
    if isinstance(profile, Mapping):
        return profile_of(profile, overrides=merged)
    if not isinstance(profile, Profile):
        return load_profile(profile, merged)
    if merged:
        raise UsageError(
            f"profile {profile.name!r} is loaded already, and nothing replaces its values any more; pass its "
            "name or path, or load it with these overrides"
        )
    return profile


def _state(profile: Profile, reporter: Listener | None) -> RunState:
    state = RunState(reporter)
    for note in profile.notes:
        state.note(note)
    return state


def _location(store: AnyStore | None) -> str | None:
    return None if store is None else opened(store).location
