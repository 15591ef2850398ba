"""The flows `train-tokenizer`, `audit-tokenizer` and `repack`: parts of the DAG of `build-corpus`.

They make the artifacts that a whole run would make, and find what it has made: the DAG is the same, and only
cut. `repack` begins at a mixture that is in the store.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

from prefect import flow
from prefect.runtime import flow_run
from pydantic import Field

from tokmill.flows.errors import RunError
from tokmill.flows.run.called import named
from tokmill.flows.run.cancelled import note_cancelled
from tokmill.flows.run.composer import Locate
from tokmill.flows.run.composition import compose, compose_packing
from tokmill.flows.run.dag import Dag
from tokmill.flows.run.direct import Compose
from tokmill.flows.run.filled import Section
from tokmill.flows.run.flow import build, load_served, profile_of_run, watched
from tokmill.flows.run.machine import Machine
from tokmill.flows.run.naming import typed_name
from tokmill.flows.run.sources import Sources
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store import Store, Verify

Workers = Annotated[int, Field(ge=1)] | None


def _name(what: str) -> Callable[[], str]:
    """Return what names a run: the name that a person has typed, or the profile's, and what is made."""

    def name() -> str:
        profile, given = profile_of_run(), flow_run.parameters or {}
        return typed_name() or (f"{given['profile']} · {what}" if profile is None else named(profile, [what]))

    return name


@flow(
    name="train-tokenizer",
    flow_run_name=_name("tokenizer"),
    description="The tokenizer of a profile, with its audit and card; nothing is mixed or packed.",
    on_cancellation=[note_cancelled],
)
def train_tokenizer(  # noqa: PLR0913, PLR0917 - fields of the form in the UI
    profile: str = "quickstart",
    train: Section = None,
    balance: Section = None,
    holdout: Section = None,
    audit: Section = None,
    experiment: Section = None,
    card: bool = True,
    more: list[str] | None = None,
    refresh: list[str] | None = None,
    store: str | None = None,
    workers: Workers = None,
    memory: str | None = None,
    verify: Verify | None = None,
    rehash: bool = False,
) -> dict[str, Any]:
    """Train and audit the tokenizer of a profile; see `build_corpus`.

    Args:
        profile: See `build_corpus`, also for the others.
        train: Values of the profile's table [train].
        balance: Values of [balance].
        holdout: Values of [holdout].
        audit: Values of [audit].
        experiment: Values of [experiment].
        card: Whether to write the tokenizer's card, for which all text is encoded.
        more: Any other values, as section.key=value.
        refresh: Stages whose artifacts are made again.
        store: Folder of the artifacts.
        workers: Number of parallel tasks.
        memory: Memory for counts.
        verify: How artifacts are checked.
        rehash: Read every source file again.

    Raises:
        ProfileError, SourceError, RunError: as `build_corpus`.
    """
    until = ["tokenizer", "audit", *(["tokenizer_card"] if card else [])]
    sections = {"train": train, "balance": balance, "holdout": holdout, "audit": audit}
    sections |= {"experiment": experiment}
    settings = _settings(store, workers, memory, verify, rehash, refresh)
    return _built(profile, sections, more, settings, lambda loaded, _: partial(compose, loaded, until=until))


@flow(
    name="audit-tokenizer",
    flow_run_name=_name("audit"),
    description="An existing tokenizer, judged on the text of a profile.",
    on_cancellation=[note_cancelled],
)
def audit_tokenizer(  # noqa: PLR0913, PLR0917 - fields of the form in the UI
    profile: str = "quickstart",
    tokenizer: Section = None,
    holdout: Section = None,
    audit: Section = None,
    experiment: Section = None,
    more: list[str] | None = None,
    refresh: list[str] | None = None,
    store: str | None = None,
    workers: Workers = None,
    memory: str | None = None,
    verify: Verify | None = None,
    rehash: bool = False,
) -> dict[str, Any]:
    """Audit a tokenizer of the store, or of files, on a profile's text; see `build_corpus`.

    Args:
        profile: See `build_corpus`, also for the others.
        tokenizer: Which one: `use`, an artifact or the path of a file or folder.
        holdout: Values of the profile's table [holdout].
        audit: Values of [audit].
        experiment: Values of [experiment].
        more: Any other values, as section.key=value.
        refresh: Stages whose artifacts are made again.
        store: Folder of the artifacts.
        workers: Number of parallel tasks.
        memory: Memory for counts.
        verify: How artifacts are checked.
        rehash: Read every source file again.

    Raises:
        ProfileError, SourceError, RunError: as `build_corpus`.
    """
    sections = {"tokenizer": tokenizer, "holdout": holdout, "audit": audit, "experiment": experiment}
    settings = _settings(store, workers, memory, verify, rehash, refresh)
    return _built(
        profile, sections, more, settings, lambda loaded, _: partial(compose, loaded, until=["audit"])
    )


@flow(
    name="repack",
    flow_run_name=_name("repack"),
    description="A mixture that is in the store, packed anew with other parameters.",
    on_cancellation=[note_cancelled],
)
def repack(  # noqa: PLR0913, PLR0917 - fields of the form in the UI
    profile: str = "quickstart",
    mixture: str = "",
    pack: Section = None,
    experiment: Section = None,
    more: list[str] | None = None,
    refresh: list[str] | None = None,
    store: str | None = None,
    workers: Workers = None,
    memory: str | None = None,
    verify: Verify | None = None,
) -> dict[str, Any]:
    """Pack a mixture again; see `build_corpus`.

    Args:
        profile: Its packing parameters are used, and its name.
        mixture: The mixture, e.g. mixture/books@v3; empty for the profile's latest.
        pack: Values of the profile's table [pack].
        experiment: Values of [experiment].
        more: Any other values, as section.key=value.
        refresh: Stages whose artifacts are made again.
        store: Folder of the artifacts.
        workers: Number of parallel tasks.
        memory: Memory of the tasks.
        verify: How artifacts are checked.

    Raises:
        ProfileError, SourceError, RunError: as `build_corpus`; there is no such mixture.
    """
    settings = _settings(store, workers, memory, verify, False, refresh)
    return _built(
        profile,
        {"pack": pack, "experiment": experiment},
        more,
        settings,
        lambda loaded, where: partial(compose_packing, loaded, _mixture(where, mixture, loaded.name)),
    )


def _settings(
    store: str | None,
    workers: int | None,
    memory: str | None,
    verify: Verify | None,
    rehash: bool,
    refresh: Sequence[str] | None,
) -> dict[str, Any]:
    return {
        "store": store,
        "workers": workers,
        "memory": memory,
        "verify": verify,
        "rehash": rehash,
        "refresh": refresh or (),
    }


def _built(
    profile: str,
    sections: Mapping[str, Section],
    more: Sequence[str] | None,
    settings: Mapping[str, Any],
    composed: Callable[[Any, Store], Compose],
) -> dict[str, Any]:
    """Load a profile, run a DAG of it, and return kind → reference of the artifacts."""
    watcher = watched()
    loaded = watcher.profile or load_served(profile, sections, more or ())
    machine = Machine.of(loaded.execution, **settings)

    def compose_here(sources: Sources, locate: Locate) -> Dag:
        return composed(loaded, machine.open_store())(sources, locate)

    result = build(loaded, machine, watcher.reporter, compose_here)
    watcher.result = result
    return {kind: ref.model_dump() for kind, ref in result.refs.items()}


def _mixture(store: Store, reference: str, name: str) -> ArtifactRef:
    """Return the mixture that is named, or the latest of a profile."""
    try:
        found = store.resolve(reference or f"mixture/{name}@latest")
    except StoreError as error:
        raise RunError(f"repack: {error}") from error
    if found.kind != "mixture":
        raise RunError(f"repack: {reference} is a {found.kind}; mixtures are called mixture/NAME")
    return found
