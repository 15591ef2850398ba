"""`tokmill.run`, `plan` and `sweep`, which the commands of these names call too."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypedDict, Unpack

from tokmill.flows.prefect.settings import may_have_a_server, prepare_terminal_run
from tokmill.flows.profile import Profile, load_profile
from tokmill.flows.results import RunResult
from tokmill.flows.run.direct import reused, run_directly
from tokmill.flows.run.machine import Machine, store_url, writable_store
from tokmill.flows.run.planning import PlanRow, plan_target
from tokmill.flows.run.progress import Reporter, noting_warnings
from tokmill.flows.run.sweeping import curves_of, grid_of
from tokmill.flows.run.target import Target
from tokmill.tasks.store import Store, Verify
from tokmill.tasks.sweep.params import SweepParams


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
    reporter: Reporter | None = None,
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
        reporter: called with the progress, from several threads.
        **settings: see `Settings`.

    Raises:
        ProfileError: the profile or an override is invalid.
        UsageError: the store cannot be created or written to.
        SourceError: a source matches no file, or one file twice.
        ServeError: no Prefect server answers, and none could be embedded.
        RunError: a task failed; artifacts that were published before stay published.
    """
    return _run(_loaded(profile, overrides), Target(until), store, prefect, reporter, settings)


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
    reporter: Reporter | None = None,
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
    return _run(loaded, target, store, prefect, reporter, settings)


def _run(
    profile: Profile,
    target: Target,
    store: str | Path | None,
    prefect: bool,
    reporter: Reporter | None,
    settings: Settings,
) -> RunResult:
    location, told = store_url(_text(store), profile.execution), reporter or Reporter()
    opened = writable_store(location)
    _report_notes(profile, told)
    machine = Machine.of(profile.execution, store=location, **settings)
    composed, name = partial(target.compose, profile, opened), target.named(profile)
    if not prefect:
        return run_directly(profile, machine, told, composed, name)
    # Prefect's engine takes longer than a run without work, and is only worth it where people see it
    if not machine.refresh and not _has_server():
        result = reused(profile, machine, told, composed, name)
        if result is not None:
            return result
    with _server(opened, told):
        from tokmill.flows.prefect.flow import run_here  # noqa: PLC0415 - see `_server`

        return run_here(profile, target, location, told, settings)


def _has_server() -> bool:
    """Whether a server is configured; Prefect is imported only if one may be."""
    if not may_have_a_server():
        return False
    prepare_terminal_run()
    from prefect.client.base import ServerType, determine_server_type  # noqa: PLC0415

    return determine_server_type() not in {ServerType.EPHEMERAL, ServerType.UNCONFIGURED}


@contextmanager
def _server(store: Store, reporter: Reporter) -> Iterator[None]:
    """Open a server for a run in this process.

    Importing Prefect takes seconds; the caller's display is shown before that.
    """
    prepare_terminal_run()
    from tokmill.flows.prefect.orphans import reconcile  # noqa: PLC0415
    from tokmill.flows.prefect.server import prefect_server  # noqa: PLC0415

    with prefect_server(reporter.note) as client:
        for name in reconcile(store, client):
            reporter.note(f"the process of run {name!r} no longer exists; the run is marked as crashed")
        yield


def plan(
    profile: str | Path | Profile,
    *,
    overrides: Iterable[str] | Mapping[str, Any] = (),
    until: Collection[str] = (),
    store: str | Path | None = None,
    rehash: bool = False,
    reporter: Reporter | None = None,
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
    reporter: Reporter | None = None,
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
    reporter: Reporter | None,
    rehash: bool = False,
) -> list[PlanRow]:
    reporter = reporter or Reporter()
    _report_notes(profile, reporter)
    machine = Machine.of(profile.execution, store=_text(store), rehash=rehash)
    with noting_warnings(reporter):
        return plan_target(profile, target, machine.open_store(), rehash=machine.rehash)


def _loaded(profile: str | Path | Profile, overrides: Iterable[str] | Mapping[str, Any]) -> Profile:
    return profile if isinstance(profile, Profile) else load_profile(profile, overrides)


def _report_notes(profile: Profile, reporter: Reporter) -> None:
    for note in profile.notes:
        reporter.note(note)


def _text(store: str | Path | None) -> str | None:
    return None if store is None else str(store)
