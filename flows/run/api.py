"""`tokmill.run`, `plan` and `sweep`, which the commands of these names call too."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tokmill.flows.profile import Profile, load_profile
from tokmill.flows.run.machine import Machine, store_url, writable_store
from tokmill.flows.run.planning import PlanRow, plan_dag, plan_profile
from tokmill.flows.run.progress import Reporter, Silent, noting_warnings
from tokmill.flows.run.results import RunResult
from tokmill.flows.run.sources import resolve_sources
from tokmill.flows.run.sweeping import compose_sweep, curves_of, grid_of
from tokmill.flows.server.settings import prepare_terminal_run
from tokmill.tasks.store import Verify
from tokmill.tasks.sweep.params import SweepParams


def run(
    profile: str | Path | Profile,
    *,
    overrides: Iterable[str] | Mapping[str, Any] = (),
    store: str | Path | None = None,
    workers: int | None = None,
    memory: str | None = None,
    verify: Verify | None = None,
    rehash: bool = False,
    reporter: Reporter | None = None,
) -> RunResult:
    """Run a profile, from raw text to packed shards; artifacts that are up to date are reused.

    The run is tracked by the configured Prefect server, or by an embedded one, which ends with this process.

    Args:
        profile: a name that ships with tokmill, the path of a TOML file, or a loaded profile.
        overrides: values that replace the profile's own, as in `load_profile`; ignored for a loaded profile.
        store: folder of the artifacts; by default the profile's, TOKMILL_STORE, or `tokmill-store`.
        workers: tasks at a time; by default one per core. Changes no result.
        memory: memory for counts before they are written to disk, e.g. `4GB`. Changes no result.
        verify: how an artifact is checked before it is reused: `sizes`, or `full` for digests as well.
        rehash: read every source file again instead of trusting its size and time.
        reporter: called with the progress, from several threads.

    Raises:
        ProfileError: the profile or an override is invalid.
        UsageError: the store cannot be created or written to.
        SourceError: a source matches no file, or one file twice.
        ServeError: no Prefect server answers, and none could be embedded.
        RunError: a task failed; artifacts that were published before stay published.
    """
    loaded = _loaded(profile, overrides)
    with _prepared(loaded, store, reporter or Silent()) as (location, told):
        from tokmill.flows.run.flow import run_profile  # noqa: PLC0415 - see `_prepared`

        return run_profile(
            loaded, location, workers=workers, memory=memory, verify=verify, rehash=rehash, reporter=told
        )


def sweep(
    profile: str | Path | Profile,
    *,
    vocab_sizes: Iterable[int] = (),
    temperatures: Iterable[float] = (),
    families: Iterable[str] = (),
    model: SweepParams | None = None,
    overrides: Iterable[str] | Mapping[str, Any] = (),
    store: str | Path | None = None,
    reporter: Reporter | None = None,
    **settings: Any,
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
        reporter: see `run`.
        **settings: `workers`, `memory`, `verify` and `rehash`, as in `run`.

    Raises:
        ProfileError: the profile is invalid, or the grid contradicts it.
        UsageError, SourceError, ServeError, RunError: as `run`.
    """
    loaded = _loaded(profile, overrides)
    grid = grid_of(vocab_sizes, temperatures, families)
    curves_of(loaded, grid)
    with _prepared(loaded, store, reporter or Silent()) as (location, told):
        from tokmill.flows.run.sweep_flow import run_sweep  # noqa: PLC0415 - see `_prepared`

        return run_sweep(loaded, grid, model or SweepParams(), location, reporter=told, **settings)


@contextmanager
def _prepared(
    profile: Profile, store: str | Path | None, reporter: Reporter
) -> Iterator[tuple[str, Reporter]]:
    """Open the store and a server for a run in this process; yield the store's location and the reporter.

    Importing Prefect takes seconds; the caller's display is shown before that.
    """
    location = store_url(_text(store), profile.execution)
    opened = writable_store(location)
    _report_notes(profile, reporter)
    prepare_terminal_run()
    from tokmill.flows.run.reconciling import reconcile  # noqa: PLC0415
    from tokmill.flows.server.prefect_server import prefect_server  # noqa: PLC0415

    with prefect_server(reporter.note):
        for name in reconcile(opened):
            reporter.note(f"the process of run {name!r} no longer exists; the run is marked as crashed")
        yield location, reporter


def plan(
    profile: str | Path | Profile,
    *,
    overrides: Iterable[str] | Mapping[str, Any] = (),
    store: str | Path | None = None,
    rehash: bool = False,
    reporter: Reporter | None = None,
) -> list[PlanRow]:
    """Return what `run` would do with the same arguments, one row per task in the order of the DAG.

    Raises:
        ProfileError: the profile or an override is invalid.
        SourceError: a source matches no file, or one file twice.
    """
    loaded = _loaded(profile, overrides)
    reporter = reporter or Silent()
    _report_notes(loaded, reporter)
    machine = Machine.of(loaded.execution, store=_text(store), rehash=rehash)
    with noting_warnings(reporter):
        return plan_profile(loaded, machine.open_store(), rehash=machine.rehash)


def plan_sweep(
    profile: str | Path | Profile,
    *,
    vocab_sizes: Iterable[int] = (),
    temperatures: Iterable[float] = (),
    families: Iterable[str] = (),
    model: SweepParams | None = None,
    overrides: Iterable[str] | Mapping[str, Any] = (),
    store: str | Path | None = None,
    reporter: Reporter | None = None,
) -> list[PlanRow]:
    """Return what `sweep` would do with the same arguments, one row per task in the order of the DAG.

    Raises:
        ProfileError, SourceError: as `sweep`.
    """
    loaded = _loaded(profile, overrides)
    reporter = reporter or Silent()
    _report_notes(loaded, reporter)
    opened = Machine.of(loaded.execution, store=_text(store)).open_store()
    grid = grid_of(vocab_sizes, temperatures, families)
    with noting_warnings(reporter):
        sources = resolve_sources(loaded, opened)
        return plan_dag(compose_sweep(loaded, grid, model or SweepParams(), sources, opened.path), opened)


def _loaded(profile: str | Path | Profile, overrides: Iterable[str] | Mapping[str, Any]) -> Profile:
    return profile if isinstance(profile, Profile) else load_profile(profile, overrides)


def _report_notes(profile: Profile, reporter: Reporter) -> None:
    for note in profile.notes:
        reporter.note(note)


def _text(store: str | Path | None) -> str | None:
    return None if store is None else str(store)
