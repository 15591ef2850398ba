"""`tokmill.run`, `plan` and `sweep`, which the commands of these names call too."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypedDict, Unpack

from tokmill.flows.prefect.settings import has_a_server, prepare_terminal_run
from tokmill.flows.profile import Profile, load_profile
from tokmill.flows.results import RunResult
from tokmill.flows.run.direct import reused, run_directly
from tokmill.flows.run.events import Listener, RunState, noting_warnings
from tokmill.flows.run.machine import Machine, store_url, writable_store
from tokmill.flows.run.planning import PlanRow, plan_target
from tokmill.flows.run.sweeping import curves_of, grid_of
from tokmill.flows.run.target import Target
from tokmill.tasks.store import Store, Verify
from tokmill.tasks.sweep.recommendation import SweepParams


class Settings(TypedDict, total=False):
    """Settings of the machine, which change no result; None for the profile's, or the default.

    Attributes:
        workers: tasks at a time; by default one per core.
        memory: memory for counts before they are written to disk, e.g. `4GB`.
        verify: how an artifact is checked before it is reused: `sizes`, or `full` for digests as well.
        rehash: read every source file again instead of trusting its size and time.
        refresh: stages (`train`, `encode`) whose artifacts are made although the store has them. What comes
            out equal leaves what follows as it is.
    """

    workers: int | None
    memory: str | None
    verify: Verify | None
    rehash: bool
    refresh: Iterable[str]


def run(
    profile: str | Path | Profile,
    *,
    overrides: Iterable[str] | Mapping[str, Any] = (),
    until: Collection[str] = (),
    store: str | Path | None = None,
    prefect: bool = True,
    reporter: Listener | None = None,
    **settings: Unpack[Settings],
) -> RunResult:
    """Run a profile, from raw text to packed shards; artifacts that are up to date are reused.

    The run is tracked by the configured Prefect server, or by an embedded one, which ends with this process;
    the embedded one is not started for a run that finds everything in the store. Every run is in the store's
    catalog.

    Args:
        profile: a name that ships with tokmill, the path of a TOML file, or a loaded profile.
        overrides: values that replace the profile's own, as in `load_profile`; ignored for a loaded profile.
        until: kinds of artifacts to make, with what they are made from (`["tokenizer"]`); all if empty.
        store: folder of the artifacts; by default the profile's, TOKMILL_STORE, or `tokmill-store`.
        prefect: whether Prefect runs the stages; else this process does, with the same artifacts.
        reporter: called with each event and the state of the run, from several threads.
        **settings: see `Settings`.

    Raises:
        ProfileError: the profile or an override is invalid.
        UsageError: the store cannot be created or written to.
        SourceError: a source matches no file, or one file twice.
        ServeError: no Prefect server answers, and none could be embedded.
        RunError: a task failed; artifacts that were published before stay published.
    """
    made = _prepared(_loaded(profile, overrides), Target(until), store, reporter, settings)
    return _run_on_prefect(*made, settings) if prefect else run_directly(*made)


def sweep(  # noqa: PLR0913 - the grid and the model are given by their parts
    profile: str | Path | Profile,
    *,
    vocab_sizes: Iterable[int] = (),
    temperatures: Iterable[float] = (),
    families: Iterable[str] = (),
    model: SweepParams | None = None,
    overrides: Iterable[str] | Mapping[str, Any] = (),
    store: str | Path | None = None,
    prefect: bool = True,
    reporter: Listener | None = None,
    **settings: Unpack[Settings],
) -> RunResult:
    """Train and measure the tokenizers of a grid; its summary is the artifact of the kind `sweep`.

    Args:
        profile: see `run`: its sources, holdout, training and parallel text are used.
        vocab_sizes: the sizes to try, with every temperature and family; none for the profile's own.
        temperatures: T of the balance, likewise.
        families: likewise.
        model: the model that the tokenizers are for.
        overrides: see `run`.
        store: see `run`.
        prefect: see `run`.
        reporter: see `run`.
        **settings: see `Settings`.

    Raises:
        ProfileError: the profile is invalid, or the grid contradicts it.
        UsageError, SourceError, ServeError, RunError: as `run`.
    """
    loaded, grid = _loaded(profile, overrides), grid_of(vocab_sizes, temperatures, families)
    curves_of(loaded, grid)
    target = Target(grid=grid, model=model or SweepParams(), word="sweep")
    made = _prepared(loaded, target, store, reporter, settings)
    return _run_on_prefect(*made, settings) if prefect else run_directly(*made)


def _prepared(
    profile: Profile, target: Target, store: str | Path | None, reporter: Listener | None, settings: Settings
) -> tuple[Profile, Target, Machine, RunState]:
    """Return what is run, and what is told of it."""
    location, state = store_url(_text(store), profile.execution), RunState(reporter)
    writable_store(location)
    _report_notes(profile, state)
    return profile, target, Machine.of(profile.execution, store=location, **settings), state


def _run_on_prefect(
    profile: Profile, target: Target, machine: Machine, state: RunState, settings: Settings
) -> RunResult:
    # Prefect's engine takes longer than a run without work, and is only worth it where people see it
    if not machine.refresh and not has_a_server():
        result = reused(profile, target, machine, state)
        if result is not None:
            return result
    with _server(machine.open_store(), state):
        from tokmill.flows.prefect.flow import run_here  # noqa: PLC0415 - see `_server`

        return run_here(profile, target, machine.store, state, settings)


@contextmanager
def _server(store: Store, state: RunState) -> Iterator[None]:
    """Open a server for a run in this process.

    Importing Prefect takes seconds; the caller's display is shown before that.
    """
    prepare_terminal_run()
    from tokmill.flows.prefect.connection import prefect_server  # noqa: PLC0415
    from tokmill.flows.prefect.worker import reconcile  # noqa: PLC0415

    with prefect_server(state.note) as client:
        for name in reconcile(store, client):
            state.note(f"the process of run {name!r} no longer exists; the run is marked as crashed")
        yield


def plan(
    profile: str | Path | Profile,
    *,
    overrides: Iterable[str] | Mapping[str, Any] = (),
    until: Collection[str] = (),
    store: str | Path | None = None,
    rehash: bool = False,
    reporter: Listener | None = None,
) -> list[PlanRow]:
    """Return what `run` would do with the same arguments, one row per task in the order of the DAG.

    Args:
        profile: see `run`.
        overrides: see `run`.
        until: see `run`.
        store: see `run`.
        rehash: see `Settings`.
        reporter: see `run`.

    Raises:
        ProfileError: the profile or an override is invalid.
        SourceError: a source matches no file, or one file twice.
    """
    return _plan(_loaded(profile, overrides), Target(until), store, reporter, rehash)


def plan_sweep(
    profile: str | Path | Profile,
    *,
    vocab_sizes: Iterable[int] = (),
    temperatures: Iterable[float] = (),
    families: Iterable[str] = (),
    model: SweepParams | None = None,
    overrides: Iterable[str] | Mapping[str, Any] = (),
    store: str | Path | None = None,
    reporter: Listener | None = None,
) -> list[PlanRow]:
    """Return what `sweep` would do with the same arguments, one row per task in the order of the DAG.

    Raises:
        ProfileError, SourceError: as `sweep`.
    """
    grid = grid_of(vocab_sizes, temperatures, families)
    return _plan(
        _loaded(profile, overrides), Target(grid=grid, model=model or SweepParams()), store, reporter
    )


def _plan(
    profile: Profile,
    target: Target,
    store: str | Path | None,
    reporter: Listener | None,
    rehash: bool = False,
) -> list[PlanRow]:
    state = RunState(reporter)
    _report_notes(profile, state)
    machine = Machine.of(profile.execution, store=_text(store), rehash=rehash)
    with noting_warnings(state.note):
        return plan_target(profile, target, machine.open_store(), rehash=machine.rehash)


def _loaded(profile: str | Path | Profile, overrides: Iterable[str] | Mapping[str, Any]) -> Profile:
    return profile if isinstance(profile, Profile) else load_profile(profile, overrides)


def _report_notes(profile: Profile, state: RunState) -> None:
    for note in profile.notes:
        state.note(note)


def _text(store: str | Path | None) -> str | None:
    return None if store is None else str(store)
