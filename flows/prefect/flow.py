"""The flow: builds what is asked of one profile, from raw text to packed shards and a data card.

One function is five flows of Prefect, which differ in their names and in what they make if nothing is said:
`build-corpus` everything, `train-tokenizer` and `audit-tokenizer` a part of it, `repack` the sequences of a
published mixture, `sweep` the tokenizers of a grid. Its parameters are the fields of the forms in the Prefect
UI, and can be set by a schedule or a deployment. Machine settings (store, workers, how thoroughly artifacts
are checked) are among them but never change a fingerprint.

A run is in the store's catalog from its start. Every run publishes a summary and what its tasks have made or
found as artifacts in the UI, even if everything was cached (`flows.prefect.page`).
"""

import gc
import os
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final

from prefect import Flow, get_run_logger
from prefect.runtime import deployment, flow_run
from pydantic import Field

from tokmill.flows.errors import ProfileError, RunError
from tokmill.flows.prefect.app import PAGES
from tokmill.flows.prefect.ending import Ending
from tokmill.flows.prefect.failure_page import failure_shown, show_refused
from tokmill.flows.prefect.flow_run import (
    ONLY_IN_FILES,
    TABLES,
    Section,
    overrides_of,
    shown_values,
    started_at_the_server,
    tag_run,
    typed_name,
)
from tokmill.flows.prefect.links import Links
from tokmill.flows.prefect.page import Page, shown_to
from tokmill.flows.prefect.runners import RUNNERS
from tokmill.flows.prefect.summary_page import summed_up
from tokmill.flows.profile import Profile, load_profile
from tokmill.flows.profile.served import require_served
from tokmill.flows.results import RunResult
from tokmill.flows.run.events import RunState, noting_warnings
from tokmill.flows.run.executor import Executor, result_of
from tokmill.flows.run.followers import followed
from tokmill.flows.run.machine import Machine
from tokmill.flows.run.record import begun, recorded, started_here
from tokmill.flows.run.sources import resolve_sources
from tokmill.flows.run.sweeping import Grid
from tokmill.flows.run.target import Target
from tokmill.flows.run.tasks import TaskSettings
from tokmill.flows.tracking.attempt import Attempt
from tokmill.tasks.core.context import context_value
from tokmill.tasks.store import Provenance, Store, Verify
from tokmill.tasks.sweep.recommendation import SweepParams

_TARGETS: Final[Mapping[str, Target]] = {
    "build-corpus": Target(),
    "train-tokenizer": Target(("tokenizer", "audit", "tokenizer_card"), word="tokenizer"),
    "audit-tokenizer": Target(("audit",), word="audit"),
    "repack": Target(mixture="", word="repack"),
    "sweep": Target(grid=Grid(), word="sweep"),
}
"""What a run of each flow makes if its parameters do not say it."""


@dataclass
class Watcher:
    """Passes a profile from the caller of a run in this process, and progress and the result back."""

    state: RunState
    profile: Profile | None = None
    result: RunResult | None = None


# None in a run that a worker starts.
_WATCHER: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


def run_here(
    profile: Profile, target: Target, store: str, state: RunState, settings: Mapping[str, Any]
) -> RunResult:
    """Run the flow in this process, with Prefect's embedded server if no other is configured.

    Raises:
        As `build`.
    """
    watcher, given = Watcher(state, profile), {**settings, "refresh": list(settings.get("refresh", ()))}
    with context_value(_WATCHER, watcher):
        if target.grid is None:
            build_corpus(profile.name, until=list(target.until), store=store, **given)
        else:
            sweep(profile.name, grid=target.grid, model=target.model, store=store, **given)
    if watcher.result is None:
        raise RunError(f"profile {profile.name!r}: the flow ended without a result")
    return watcher.result


def build(  # noqa: PLR0913, PLR0917 - fields of the form in the UI
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
    mixture: str | None = None,
    grid: Grid | None = None,
    model: SweepParams | None = None,
    refresh: list[str] | None = None,
    store: str | None = None,
    workers: Annotated[int, Field(ge=1)] | None = None,
    memory: str | None = None,
    verify: Verify | None = None,
    rehash: bool = False,
) -> dict[str, Any]:
    """Build the artifacts of a profile and return kind → reference of the artifacts.

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
        mixture: A mixture to pack again, e.g. mixture/books@v3; empty for the profile's latest.
        grid: What a sweep tries, all with all; an empty list stands for the profile's own.
        model: The model that a sweep's tokenizers are for.
        refresh: Stages whose artifacts are made again although the store has them.
        store: Folder of the artifacts; empty for TOKMILL_STORE or the profile's own.
        workers: Number of parallel tasks; empty for one per core. Changes no result.
        memory: Memory for counts before they are written to disk, e.g. 4GB; empty for a quarter of the RAM.
            Changes no result.
        verify: How an artifact is checked before it is reused: its files' sizes, or their digests as well.
        rehash: Read every source file again instead of trusting its size and modification time.

    Raises:
        ProfileError: the profile or an override is invalid, or the grid contradicts it.
        SourceError: a source matches no file, or one file twice.
        RunError: a task failed (artifacts that were published before stay published), or there is no such
            mixture.
    """
    watcher = _WATCHER.get() or Watcher(RunState())
    loaded = watcher.profile or _served(profile, flow_run.parameters)
    machine = Machine.of(
        loaded.execution,
        store=store,
        workers=workers,
        memory=memory,
        verify=verify,
        rehash=rehash,
        refresh=refresh or (),
    )
    target = _target(until, mixture, grid, model)
    watcher.result = _recorded(loaded, target, machine, watcher.state)
    return {kind: ref.model_dump() for kind, ref in watcher.result.refs.items()}


def _target(
    until: Sequence[str] | None, mixture: str | None, grid: Grid | None, model: SweepParams | None
) -> Target:
    usual = _TARGETS[flow_run.flow_name]
    return Target(
        until or usual.until,
        usual.mixture if mixture is None else mixture,
        grid or usual.grid,
        model or usual.model,
        usual.word,
    )


def run_name() -> str:
    """Return the name that a person has typed, or one of the profile and what is made of it."""
    typed, given, watcher = typed_name(), flow_run.parameters or {}, _WATCHER.get()
    if typed is not None:
        return typed
    profile: str | Profile = str(given["profile"])
    try:
        grid = Grid.model_validate(given["grid"]) if given.get("grid") else None
        profile = (watcher and watcher.profile) or _loaded(str(profile), given)
    except (ProfileError, ValueError):  # which the run reports
        grid = None
    return _target(None, None, grid, None).named(profile)


def _served(profile: str, given: Mapping[str, Any]) -> Profile:
    """Load the profile of a run that a worker starts; log its notes.

    Raises:
        ProfileError: the profile is not served, or it or a value is invalid.
    """
    try:
        loaded = _loaded(profile, given)
    except ProfileError as error:
        show_refused(profile, error)
        raise
    for note in loaded.notes:
        get_run_logger().warning(note)
    return loaded


def _loaded(profile: str, given: Mapping[str, Any]) -> Profile:
    require_served(profile)
    sections = {name: given.get(name) for name in TABLES}
    overrides = overrides_of(sections, given.get("more") or (), shown_values(str(flow_run.id)))
    return load_profile(profile, overrides, fixed=ONLY_IN_FILES)


def _recorded(profile: Profile, target: Target, machine: Machine, state: RunState) -> RunResult:
    """Run a DAG on Prefect, and record the run's start and end in the catalog."""
    store, run_id, in_this_process = machine.open_store(), str(flow_run.id), _WATCHER.get() is not None
    if not in_this_process:
        gc.freeze()  # a process of its own: its modules are never garbage, and need not be looked through
    deployed = None if in_this_process else deployment.id  # which asks the server if there is none
    provenance = Provenance.collect(flow_run_id=run_id, deployment_id=deployed)
    ending = Ending(store, run_id, state)
    begins = begun(
        profile,
        machine,
        provenance,
        name=flow_run.name,
        started_by=started_here() if in_this_process else started_at_the_server(),
        url=flow_run.ui_url,
    )
    attempt = Attempt(run_id, flow_run.run_count or 1, begins, store)
    with (
        recorded(store, run_id, begins, state, ending.note) as completed,
        followed(profile, attempt, state, get_run_logger().warning),
    ):
        tag_run(profile)
        result = _execute(profile, target, machine, state, provenance, ending)
        completed(result)
    return result


def _execute(
    profile: Profile,
    target: Target,
    machine: Machine,
    state: RunState,
    provenance: Provenance,
    ending: Ending,
) -> RunResult:
    store, run_id = machine.open_store(), str(provenance.flow_run_id)
    with RUNNERS[machine.runner](machine) as tasks, noting_warnings(state.note):
        ending.task_runs = tasks.task_runs
        page = Page(store, run_id, profile.name, _links(store, run_id), tasks.task_runs)
        state.listeners.append(page)
        failing = failure_shown(page.publish, profile.name, page.links, tasks.task_runs, state)
        with shown_to(page), ending.at_once(tasks.stop), failing:
            state.sources = resolve_sources(profile, store, rehash=machine.rehash)
            dag = target.compose(profile, store, state.sources)
            done = Executor(store, tasks, state, TaskSettings.of(machine, provenance)).run(dag.jobs)
            result = result_of(run_id, dag, done, state.rows)
            page.publish(partial(summed_up, profile, store, machine.words, result, state, page.links))
    return result


def _links(store: Store, run_id: str) -> Links:
    """Return what can be linked from the pages of the current run."""
    return Links(store.location, os.environ.get(PAGES), {run_id: flow_run.name or run_id}, {run_id})


def _named(name: str, description: str) -> Flow[..., dict[str, Any]]:
    """Return a flow of Prefect's whose runs are named as ours are."""
    return Flow(
        build,
        name=name,
        flow_run_name=run_name,
        description=description,
    )


build_corpus = _named(
    "build-corpus", "Raw text to packed token shards: every stage cached by its fingerprint."
)
train_tokenizer = _named(
    "train-tokenizer",
    "The tokenizer of a profile, with its audit and card; nothing is mixed or packed.",
)
audit_tokenizer = _named("audit-tokenizer", "An existing tokenizer, judged on the text of a profile.")
repack = _named("repack", "A mixture that is in the store, packed anew with other parameters.")
sweep = _named(
    "sweep",
    "Tokenizers of several families, temperatures and sizes, measured side by side, and which to take.",
)
