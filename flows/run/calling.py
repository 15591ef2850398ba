"""Runs and plans profiles: `tokmill.run` and `tokmill.plan`, and the commands of these names."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tokmill.flows.profile import Profile, load_profile
from tokmill.flows.run.machine import Machine, store_url, writable_store
from tokmill.flows.run.planning import PlanRow, plan_profile
from tokmill.flows.run.progress import Reporter, Silent, noting_warnings
from tokmill.flows.run.results import RunResult
from tokmill.flows.server.settings import prepare_terminal_run
from tokmill.tasks.store import Verify


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
    """Run a profile, from raw text to packed shards; artifacts that are up to date are not made again.

    Reports to the Prefect server that is configured, or to one that is embedded until this process ends.

    Args:
        profile: a name that ships with tokmill, the path of a TOML file, or a loaded profile.
        overrides: values that replace the profile's own, as in `load_profile`; none for a loaded profile.
        store: folder of the artifacts; by default the profile's, TOKMILL_STORE, or `tokmill-store`.
        workers: tasks at a time; by default one per core. Changes no result.
        memory: memory that counts may take before they go to disk, e.g. `4GB`. Changes no result.
        verify: how an artifact is checked before it is reused: `sizes`, or `full` for digests as well.
        rehash: read every source file again instead of trusting its size and time.
        reporter: receives the progress, from several threads.

    Raises:
        ProfileError: the profile or an override is wrong.
        UsageError: the store cannot be made or written to.
        SourceError: a source matches nothing, or a file twice.
        ServeError: no Prefect server answers, and none could be embedded.
        RunError: a task failed; what was published before stays published.
    """
    loaded = _loaded(profile, overrides)
    location = store_url(_text(store), loaded.execution)
    opened = writable_store(location)
    reporter = reporter or Silent()
    _report_notes(loaded, reporter)
    prepare_terminal_run()
    # Prefect takes seconds to import: here, so that the caller's display is up before.
    from tokmill.flows.run.flow import run_profile  # noqa: PLC0415
    from tokmill.flows.run.reconciling import reconcile  # noqa: PLC0415
    from tokmill.flows.server.prefect_server import prefect_server  # noqa: PLC0415

    with prefect_server(reporter.note):
        for name in reconcile(opened):
            reporter.note(f"the process of run {name!r} is gone; the run is marked as crashed")
        return run_profile(
            loaded, location, workers=workers, memory=memory, verify=verify, rehash=rehash, reporter=reporter
        )


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
        ProfileError: the profile or an override is wrong.
        SourceError: a source matches nothing, or a file twice.
    """
    loaded = _loaded(profile, overrides)
    reporter = reporter or Silent()
    _report_notes(loaded, reporter)
    machine = Machine.of(loaded.execution, store=_text(store), rehash=rehash)
    with noting_warnings(reporter):
        return plan_profile(loaded, machine.open_store(), rehash=machine.rehash)


def _loaded(profile: str | Path | Profile, overrides: Iterable[str] | Mapping[str, Any]) -> Profile:
    return profile if isinstance(profile, Profile) else load_profile(profile, overrides)


def _report_notes(profile: Profile, reporter: Reporter) -> None:
    for note in profile.notes:
        reporter.note(note)


def _text(store: str | Path | None) -> str | None:
    return None if store is None else str(store)
