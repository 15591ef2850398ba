"""The flow `sweep`: trains and measures the tokenizers of a grid, and recommends one of them."""

from functools import partial
from typing import Annotated, Any

from prefect import flow
from prefect.runtime import flow_run
from pydantic import Field

from tokmill.flows.profile import Profile
from tokmill.flows.run.called import named
from tokmill.flows.run.cancelled import note_cancelled
from tokmill.flows.run.composer import Locate
from tokmill.flows.run.dag import Dag
from tokmill.flows.run.filled import Section
from tokmill.flows.run.flow import build, load_served, profile_of_run, watched, watching
from tokmill.flows.run.machine import Machine
from tokmill.flows.run.naming import typed_name
from tokmill.flows.run.progress import Reporter
from tokmill.flows.run.results import RunResult
from tokmill.flows.run.sources import Sources
from tokmill.flows.run.sweeping import Grid, compose_sweep, tried
from tokmill.tasks.store import Verify
from tokmill.tasks.sweep.params import SweepParams


def _sweep_name() -> str:
    """Return the name that a person has typed, or the profile's with what is tried of it."""
    typed, given = typed_name(), flow_run.parameters or {}
    if typed is not None:
        return typed
    profile = profile_of_run()
    if profile is None:
        return f"{given['profile']} · sweep"
    return named(profile, ["sweep", *tried(given.get("grid") or {})])


@flow(
    name="sweep",
    flow_run_name=_sweep_name,
    description="Tokenizers of several families, temperatures and sizes, measured side by side.",
    on_cancellation=[note_cancelled],
)
def sweep_tokenizers(  # noqa: PLR0913, PLR0917 - fields of the form in the UI
    profile: str = "quickstart",
    grid: Grid = Grid(),  # noqa: B008 - frozen
    model: SweepParams = SweepParams(),  # noqa: B008 - frozen
    train: Section = None,
    balance: Section = None,
    holdout: Section = None,
    experiment: Section = None,
    more: list[str] | None = None,
    store: str | None = None,
    workers: Annotated[int, Field(ge=1)] | None = None,
    memory: str | None = None,
    verify: Verify | None = None,
    rehash: bool = False,
) -> dict[str, Any]:
    """Train and measure every tokenizer of a grid and return kind → reference of the artifacts.

    Args:
        profile: A profile that ships with tokmill, or the path of a TOML file.
        grid: What is tried, all with all; an empty list stands for the profile's own.
        model: The model that the tokenizers are for.
        train: Values that replace those of the profile's table [train] for this run.
        balance: Likewise for [balance].
        holdout: Likewise for [holdout].
        experiment: Likewise for [experiment].
        more: Any other values, as section.key=value.
        store: Folder of the artifacts; empty for TOKMILL_STORE or the profile's own.
        workers: Number of parallel tasks; empty for one per core. Changes no result.
        memory: Memory for counts before they are written to disk; empty for a quarter of the RAM.
        verify: How an artifact is checked before it is reused: its files' sizes, or their digests as well.
        rehash: Read every source file again instead of trusting its size and modification time.

    Raises:
        ProfileError: the profile or an override is invalid, or the grid contradicts it.
        SourceError: a source matches no file, or one file twice.
        RunError: a task failed; artifacts that were published before stay published.
    """
    watcher = watched()
    sections = {"train": train, "balance": balance, "holdout": holdout, "experiment": experiment}
    loaded = watcher.profile or load_served(profile, sections, more or ())
    machine = Machine.of(
        loaded.execution, store=store, workers=workers, memory=memory, verify=verify, rehash=rehash
    )
    watcher.result = build(loaded, machine, watcher.reporter, partial(_composed, loaded, grid, model))
    return {kind: ref.model_dump() for kind, ref in watcher.result.refs.items()}


def run_sweep(
    profile: Profile,
    grid: Grid,
    model: SweepParams,
    store: str,
    *,
    reporter: Reporter | None = None,
    **settings: Any,
) -> RunResult:
    """Run the flow in this process; see `flow.run_profile`."""
    with watching(profile, reporter) as watcher:
        sweep_tokenizers(profile.name, grid, model, store=store, **settings)
    return watcher.outcome()


def _composed(profile: Profile, grid: Grid, model: SweepParams, sources: Sources, locate: Locate) -> Dag:
    return compose_sweep(profile, grid, model, sources, locate)
