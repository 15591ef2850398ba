"""The flows: the one that builds what is asked of a profile, and those of a store's upkeep.

One function is five flows, which differ in name and in what they make if nothing is said. Its parameters are
the fields of the forms in the UI; those of the machine never change a fingerprint.
"""

import gc
import logging
import os
import re
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, Any, Final
from uuid import UUID

from prefect import Flow, flow, get_run_logger
from prefect.artifacts import create_markdown_artifact
from prefect.client.orchestration import get_client
from prefect.runtime import deployment, flow_run
from pydantic import Field

from tokmill.flows.errors import ProfileError, RunError
from tokmill.flows.prefect.artifact_page import Links, key_of
from tokmill.flows.prefect.ending import Ending
from tokmill.flows.prefect.form import SECTIONS, Section, overrides_of
from tokmill.flows.prefect.page import Page, show_refused
from tokmill.flows.prefect.run_page import summed_up
from tokmill.flows.prefect.runners import RUNNERS
from tokmill.flows.prefect.settings import HOW, PAGES, USER
from tokmill.flows.profile import Profile, load_profile
from tokmill.flows.profile.served import require_served
from tokmill.flows.results import RunResult
from tokmill.flows.run.events import RunState, noting_warnings
from tokmill.flows.run.executor import Executor, composed
from tokmill.flows.run.machine import Machine, open_store, store_url
from tokmill.flows.run.record import begun, followed, recorded, started_here
from tokmill.flows.run.sweeping import Grid
from tokmill.flows.run.target import Target, tags_of
from tokmill.flows.tracking.attempt import Attempt
from tokmill.flows.upkeep import checking, collecting
from tokmill.tasks.core.context import context_value
from tokmill.tasks.store import Provenance, Verify
from tokmill.tasks.store.runs import StartedBy
from tokmill.tasks.sweep.recommendation import SweepParams

_LOG = logging.getLogger(__name__)
_RANDOM: Final = re.compile(r"[A-Za-z]+-[A-Za-z]+")  # `tan-newt`, or in the page's form `Generic-Loach`
ONLY_IN_FILES: Final = frozenset({"openlineage", "mlflow", "execution.credentials", "execution.address"})
"""What the form cannot change: who writes to the API must not name others' secrets, or where results go; a
cluster at another address would be sent programs, and believed what it sends back."""
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

    Values that differ from the profile's own replace them for this run.

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
    usual = _TARGETS[flow_run.flow_name]
    target = Target(
        until or usual.until,
        usual.mixture if mixture is None else mixture,
        grid or usual.grid,
        model or usual.model,
        usual.word,
    )
    watcher.result = _recorded(loaded, target, machine, watcher.state)
    return {kind: ref.model_dump() for kind, ref in watcher.result.refs.items()}


def run_name() -> str:
    """Return the name that a person has typed, or one of the profile and what is made of it."""
    typed, given, watcher = _typed_name(), flow_run.parameters or {}, _WATCHER.get()
    if typed is not None:
        return typed
    usual, profile = _TARGETS[flow_run.flow_name], str(given["profile"])
    try:
        grid = Grid.model_validate(given["grid"]) if given.get("grid") else usual.grid
        loaded = (watcher and watcher.profile) or _loaded(profile, given)
    except (ProfileError, ValueError):  # which the run reports
        return usual.named(profile)
    return Target(grid=grid, word=usual.word).named(loaded)


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
    sections = {name: given.get(name) or {} for name in SECTIONS}
    own = load_profile(profile) if any(sections.values()) else None
    return load_profile(profile, overrides_of(sections, given.get("more") or (), own), fixed=ONLY_IN_FILES)


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
        started_by=started_here() if in_this_process else _started_at_the_server(),
        url=flow_run.ui_url,
    )
    attempt = Attempt(run_id, flow_run.run_count or 1, begins, store)
    with (
        recorded(store, run_id, begins, state, ending.note) as completed,
        followed(profile, attempt, state, get_run_logger().warning),
    ):
        _tag_run(profile)
        with RUNNERS[machine.runner or "threads"](machine) as tasks, noting_warnings(state.note):
            links = Links(store, flow_run.ui_url or "", os.environ.get(PAGES))
            page = Page(run_id, profile.name, links, state, tasks.task_runs)
            state.listeners.append(page)
            with page.shown(), ending.at_once(tasks.stop):
                dag = composed(profile, target, store, machine, state)
                done = Executor(store, tasks, state, machine, provenance).run(dag.jobs)
                result = RunResult(run_id, state.rows, dag.artifacts(done))
                page.publish(lambda: summed_up(profile, machine.words, result, state, links))
        completed(result)
    return result


def _typed_name() -> str | None:
    """Return the current flow run's name if a person chose it; None for one of Prefect's random names."""
    name = flow_run.name
    return None if not name or _RANDOM.fullmatch(name) else str(name)


def _tag_run(profile: Profile) -> None:
    """Add the tags of a profile to the current flow run; a run without tags is better than one that fails."""
    known = set(flow_run.tags)
    wanted = known | tags_of(profile)
    try:
        if wanted != known:
            with get_client(sync_client=True) as client:
                client.update_flow_run(UUID(str(flow_run.id)), tags=sorted(wanted))
    except Exception as error:
        _LOG.warning("the run has no tags: %s", error)


def _started_at_the_server() -> StartedBy:
    """Return who asked for the current flow run, and how; `deployment` if the server does not say more."""
    name, labels = deployment.name or "", dict[str, Any]()
    try:
        with get_client(sync_client=True) as client:
            run = client.read_flow_run(UUID(str(flow_run.id)))
    except Exception as error:  # a run that does not know who asked for it is better than none
        _LOG.info("who asked for the run is not known: %s", error)
    else:
        labels = run.labels
        if run.auto_scheduled:
            return StartedBy(how="schedule", detail=name)
        if run.created_by is not None and run.created_by.type == "AUTOMATION":
            return StartedBy(how="automation", detail=run.created_by.display_value or name)
    return StartedBy(how=str(labels.get(HOW, "deployment")), user=str(labels.get(USER, "")), detail=name)


def _named(name: str, description: str) -> Flow[..., dict[str, Any]]:
    """Return a flow of Prefect's whose runs are named as ours are."""
    return Flow(build, name=name, flow_run_name=run_name, description=description)


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


@flow(name="verify-store", description="Every artifact's files compared with the digests in its record.")
def verify_store(deep: bool = True, store: str | None = None) -> dict[str, Any]:
    """Check every artifact of a store, and fail if there is a problem.

    Args:
        deep: Compare digests; if not, only sizes.
        store: Folder or URL of the store; empty for TOKMILL_STORE.

    Raises:
        RunError: an artifact is missing, incomplete or damaged. The next run that needs it makes it again.
    """
    opened = open_store(store_url(store or None))
    checked = checking.check_store(opened, deep=deep)
    _report("verify", opened.root.name, checked)
    if not checked.ok:
        raise RunError(checked.summary)
    return checked.to_json()


@flow(name="collect-garbage", description="What no name, run or dependent keeps is removed from the store.")
def collect_garbage(
    older_than_days: Annotated[float, Field(ge=0)] = 14.0,
    keep: Annotated[int, Field(ge=0)] = 1,
    apply: bool = True,
    store: str | None = None,
) -> dict[str, Any]:
    """Remove the artifacts that nothing keeps, as `tokmill store gc` does.

    Args:
        older_than_days: Younger artifacts and runs are kept.
        keep: Latest versions of each name, and last completed runs of each profile, that are kept.
        apply: Remove them; if not, only list them.
        store: Folder or URL of the store; empty for TOKMILL_STORE.

    Raises:
        StoreError: another collector runs, or the store cannot be read; nothing is removed then.
    """
    opened, report = open_store(store_url(store or None)), get_run_logger().info
    collected = collecting.collect_garbage(
        opened, older_than_days=older_than_days, keep=keep, apply=apply, report=report
    )
    _report("garbage", opened.root.name, collected)
    return collected.to_json()


def _report(what: str, store: str, report: checking.Checked | collecting.Collected) -> None:
    create_markdown_artifact(report.to_markdown(), key_of(what, store), description=report.summary)
    get_run_logger().info(report.summary)
