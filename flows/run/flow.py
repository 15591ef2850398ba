"""The flow `build-corpus`: builds one profile, from raw text to packed shards and a data card.

The flow's parameters are the fields of the form in the Prefect UI, and can be set by a schedule or a
deployment. Machine settings (store, workers, how thoroughly artifacts are checked) are among them but never
change a fingerprint. A run is in the store's catalog from its start. Every run publishes a summary and what
its tasks have made or found as artifacts in the UI, even if everything was cached (`flows.run.page`).

`build` runs any DAG in this way; the flow of sweeps uses it, too.
"""

import gc
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from prefect import flow, get_run_logger
from prefect.runtime import deployment, flow_run
from pydantic import Field

from tokmill.flows.errors import ProfileError, RunError
from tokmill.flows.page.links import Links
from tokmill.flows.profile import Profile, load_profile
from tokmill.flows.profile.served import require_served
from tokmill.flows.run.announcing import announcer_of
from tokmill.flows.run.asked import started_at_the_server
from tokmill.flows.run.beginning import begun, started_here
from tokmill.flows.run.called import named
from tokmill.flows.run.cancelled import note_cancelled
from tokmill.flows.run.composer import Locate
from tokmill.flows.run.composition import compose
from tokmill.flows.run.dag import Dag
from tokmill.flows.run.ending import Ending
from tokmill.flows.run.execution import Executor
from tokmill.flows.run.failure import failure_shown, show_refused
from tokmill.flows.run.filled import ONLY_IN_FILES, TABLES, Section, overrides_of, shown_values
from tokmill.flows.run.machine import Machine
from tokmill.flows.run.naming import tag_run, typed_name
from tokmill.flows.run.observing import attempt_of, followed
from tokmill.flows.run.page import Page, shown_to
from tokmill.flows.run.progress import Both, Reporter, Silent, noting_warnings
from tokmill.flows.run.recording import recorded
from tokmill.flows.run.results import RunResult
from tokmill.flows.run.runners import RUNNERS
from tokmill.flows.run.so_far import SoFar
from tokmill.flows.run.sources import Sources, resolve_sources
from tokmill.flows.run.summary import summed_up
from tokmill.flows.server.pages import PAGES
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store import Provenance, Store, Verify


@dataclass
class Watcher:
    """Passes a profile from the caller of a run in this process, and progress and the result back."""

    reporter: Reporter
    profile: Profile | None = None
    result: RunResult | None = None

    def outcome(self) -> RunResult:
        """Return the result of the run that has ended.

        Raises:
            RunError: there is none.
        """
        if self.result is None:
            name = "" if self.profile is None else f"profile {self.profile.name!r}: "
            raise RunError(f"{name}the flow ended without a result")
        return self.result


# None in a run that a worker starts.
_WATCHER: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


def watched() -> Watcher:
    """Return the watcher of this run; a silent one if a worker started it."""
    return _WATCHER.get() or Watcher(Silent())


@contextmanager
def watching(profile: Profile, reporter: Reporter | None) -> Iterator[Watcher]:
    """Hand a loaded profile, and who is told of the progress, to the flow that is called in this block."""
    watcher = Watcher(reporter or Silent(), profile)
    token = _WATCHER.set(watcher)
    try:
        yield watcher
    finally:
        _WATCHER.reset(token)


def profile_of_run() -> Profile | None:
    """Return the profile of the current flow run; None if it cannot be loaded, which the run reports."""
    given = flow_run.parameters or {}
    try:
        sections = {name: given.get(name) for name in TABLES}
        return watched().profile or _loaded(str(given["profile"]), sections, given.get("more") or ())
    except (ProfileError, ValueError):
        return None


def run_name() -> str:
    """Return the name that a person has typed, or the profile's with what overrides change of it."""
    typed = typed_name()
    if typed is not None:
        return typed
    profile = profile_of_run()
    return str((flow_run.parameters or {})["profile"]) if profile is None else named(profile)


@flow(
    name="build-corpus",
    flow_run_name=run_name,
    description="Raw text to packed token shards: every stage cached by its fingerprint.",
    on_cancellation=[note_cancelled],
)
def build_corpus(  # noqa: PLR0913, PLR0917 - fields of the form in the UI
    profile: str = "quickstart",
    train: Section = None,
    balance: Section = None,
    tokenizer: Section = None,
    mix: Section = None,
    pack: Section = None,
    holdout: Section = None,
    audit: Section = None,
    experiment: Section = None,
    more: list[str] | None = None,
    until: list[str] | None = None,
    refresh: list[str] | None = None,
    store: str | None = None,
    workers: Annotated[int, Field(ge=1)] | None = None,
    memory: str | None = None,
    verify: Verify | None = None,
    rehash: bool = False,
) -> dict[str, Any]:
    """Build every artifact of a profile and return kind → reference of the artifacts.

    Values replace the profile's own for this run, unless they are as the deployment's form showed them.

    Args:
        profile: A profile that ships with tokmill (quickstart, smoke), or the path of a TOML file.
        train: Values of the profile's table [train].
        balance: Values of [balance].
        tokenizer: Values of [tokenizer].
        mix: Values of [mix].
        pack: Values of [pack].
        holdout: Values of [holdout].
        audit: Values of [audit].
        experiment: Values of [experiment]: what the run belongs to, tags and notes; they change no artifact.
        more: Any other values, as section.key=value, e.g. encode.min_tokens=16.
        until: Kinds of artifacts to make, with what they are made from; all if empty.
        refresh: Stages whose artifacts are made again although the store has them.
        store: Folder of the artifacts; empty for TOKMILL_STORE or the profile's own.
        workers: Number of parallel tasks; empty for one per core. Changes no result.
        memory: Memory for counts before they are written to disk, e.g. 4GB; empty for a quarter of the RAM.
            Changes no result.
        verify: How an artifact is checked before it is reused: its files' sizes, or their digests as well.
        rehash: Read every source file again instead of trusting its size and modification time.

    Raises:
        ProfileError: the profile or an override is invalid.
        SourceError: a source matches no file, or one file twice.
        RunError: a task failed; artifacts that were published before stay published.
    """
    watcher = watched()
    sections = {"train": train, "balance": balance, "tokenizer": tokenizer, "mix": mix, "pack": pack}
    loaded = watcher.profile or load_served(
        profile, {**sections, "holdout": holdout, "audit": audit, "experiment": experiment}, more or ()
    )
    machine = Machine.of(
        loaded.execution,
        store=store,
        workers=workers,
        memory=memory,
        verify=verify,
        rehash=rehash,
        refresh=refresh or (),
    )
    composed = partial(compose, loaded, until=until or ())
    watcher.result = build(loaded, machine, watcher.reporter, composed)
    return {kind: ref.model_dump() for kind, ref in watcher.result.refs.items()}


def run_profile(  # noqa: PLR0913 - settings of the machine
    profile: Profile,
    store: str,
    *,
    workers: int | None = None,
    memory: str | None = None,
    verify: Verify | None = None,
    rehash: bool = False,
    refresh: Iterable[str] = (),
    until: Iterable[str] = (),
    reporter: Reporter | None = None,
) -> RunResult:
    """Run the flow in this process, with Prefect's embedded server if no other is configured.

    Args:
        profile: the profile to build.
        store: folder or URL of the artifacts.
        workers: tasks at a time; one per core if None.
        memory: memory for counts before they are written to disk, e.g. `4GB`; a quarter of the RAM if None.
        verify: how thoroughly existing artifacts are checked; the profile's setting if None.
        rehash: digest every source file again.
        refresh: stages whose artifacts are made although the store has them.
        until: kinds of artifacts to make; all if there are none.
        reporter: called with the progress, from several threads.

    Raises:
        As `build_corpus`.
    """
    with watching(profile, reporter) as watcher:
        build_corpus(
            profile.name,
            until=list(until),
            refresh=list(refresh),
            store=store,
            workers=workers,
            memory=memory,
            verify=verify,
            rehash=rehash,
        )
    return watcher.outcome()


def load_served(profile: str, sections: Mapping[str, Section], more: Sequence[str]) -> Profile:
    """Load the profile of a run that a worker starts; log its notes.

    Args:
        profile: the name or path that the run was given.
        sections: the values that it was given, by table of the profile.
        more: further values, as `section.key=value`.

    Raises:
        ProfileError: the profile is not served, or it or a value is invalid.
    """
    try:
        loaded = _loaded(profile, sections, more)
    except ProfileError as error:
        show_refused(profile, error)
        raise
    for note in loaded.notes:
        get_run_logger().warning(note)
    return loaded


def _loaded(profile: str, sections: Mapping[str, Section], more: Sequence[str]) -> Profile:
    require_served(profile)
    overrides = overrides_of(sections, more, shown_values(str(flow_run.id)))
    return load_profile(profile, overrides, fixed=ONLY_IN_FILES)


def build(
    profile: Profile, machine: Machine, reporter: Reporter, compose: Callable[[Sources, Locate], Dag]
) -> RunResult:
    """Run a DAG on Prefect, and record the run's start and end in the catalog.

    Args:
        profile: the resolved profile, which is recorded.
        machine: the machine settings.
        reporter: called with the progress.
        compose: returns the DAG, given the resolved sources and where artifacts are.
    """
    store = machine.open_store()
    run_id = str(flow_run.id)
    so_far, in_this_process = SoFar(), _WATCHER.get() is not None
    if not in_this_process:
        gc.freeze()  # a process of its own: its modules are never garbage, and need not be looked through
    deployed = None if in_this_process else deployment.id  # which asks the server if there is none
    provenance = Provenance.collect(flow_run_id=run_id, deployment_id=deployed)
    ending = Ending(store, run_id, so_far, hurried=not in_this_process)
    begins = begun(
        profile,
        machine,
        provenance,
        name=flow_run.name,
        started_by=started_here() if in_this_process else started_at_the_server(),
        url=flow_run.ui_url,
    )
    announcer = announcer_of(profile, store, get_run_logger().warning, flow_run.ui_url)
    attempt = attempt_of(run_id, begins, store, number=flow_run.run_count or 1)
    with (
        ending.after_all(),
        recorded(store, run_id, begins, so_far, ending.note, announcer) as completed,
        followed(profile, attempt, reporter, get_run_logger().warning) as told,
    ):
        result = _execute(profile, machine, store, told, provenance, compose, ending, so_far)
        completed(result)
    return result


def _execute(
    profile: Profile,
    machine: Machine,
    store: Store,
    reporter: Reporter,
    provenance: Provenance,
    compose: Callable[[Sources, Locate], Dag],
    ending: Ending,
    so_far: SoFar,
) -> RunResult:
    run_id = str(provenance.flow_run_id)
    tag_run(profile)
    with RUNNERS[machine.runner].opened(machine, run_id) as tasks, noting_warnings(reporter):
        ending.task_runs = tasks.task_runs
        page = Page(store, run_id, profile.name, _links(store, run_id), tasks.task_runs)
        share, told = machine.memory_bytes // machine.workers, Both(reporter, page)
        settings = (machine.verify, share, provenance, machine.limits, machine.refresh)
        executor = Executor(store, tasks, told, *settings)
        executor.credentials = machine.credentials
        so_far.rows, so_far.steps = executor.rows_so_far, executor.steps_so_far
        failing = failure_shown(page.publish, profile, page.links, tasks.task_runs, executor.standing)
        with shown_to(page), ending.at_once(tasks.stop), failing:
            so_far.sources = resolve_sources(profile, store, rehash=machine.rehash)
            dag = compose(so_far.sources, store.place)
            made = dag.artifacts(executor.run(dag.jobs))
            refs = {kind: ref for kind, ref in made.items() if isinstance(ref, ArtifactRef)}
            result = RunResult(run_id, executor.rows, refs)
            page.publish(partial(summed_up, profile, store, machine, result, page.links))
    return result


def _links(store: Store, run_id: str) -> Links:
    """Return what can be linked from the pages of the current run."""
    return Links(store.location, os.environ.get(PAGES), {run_id: flow_run.name or run_id}, {run_id})
