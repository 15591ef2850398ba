"""`tokmill.run` from Python: a profile of any form, and a result with artifacts, paths and figures."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Unpack

from tokmill.flows.errors import UsageError, suggestion
from tokmill.flows.figures import key_figures, span
from tokmill.flows.library import api
from tokmill.flows.library.artifact import Artifact
from tokmill.flows.library.notebook import in_notebook, shown
from tokmill.flows.library.options import RunOptions
from tokmill.flows.library.store import Store, opened
from tokmill.flows.library.table import Table
from tokmill.flows.prefect.settings import has_a_server
from tokmill.flows.profile import Profile, load_profile, profile_of
from tokmill.flows.profile.load import parse_override
from tokmill.flows.results import RunResult, wall_seconds
from tokmill.flows.run.events import Listener
from tokmill.flows.run.machine import store_url
from tokmill.tasks.store import Store as ArtifactStore
from tokmill.tokenizer.core import markup


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
        import pyarrow as pa  # noqa: PLC0415 - `import tokmill` stays quick

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
        return Table(pa.Table.from_pylist(rows), "Tasks")

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
        how = {row.ref: row for row in self.rows}
        rows = [
            (
                kind,
                artifact.reference,
                how[artifact.ref].how if artifact.ref in how else "",
                key_figures(kind, artifact.figures),
            )
            for kind, artifact in self.artifacts.items()
        ]
        detail = f"{self._outcome()}, {span(wall_seconds(self.rows))}" if self.rows else ""
        table = markup.grid(("kind", "artifact", "result", "figures"), rows)
        return markup.sheet(f"Run of {self.profile.name}", table, detail=detail)


def run(
    profile: str | Path | Profile | Mapping[str, Any],
    *,
    overrides: Iterable[str] | Mapping[str, Any] = (),
    until: Collection[str] | str = (),
    store: str | Path | ArtifactStore | None = None,
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
            settings of the machine that change no result: see `tokmill.flows.library.api.Settings`.

    Returns:
        The artifacts by kind, with paths and figures.

    Raises:
        ProfileError: the profile or an override is invalid.
        UsageError: the store cannot be created or written to, or there is no such section or setting.
        SourceError: a source matches no file, or one file twice.
        ServeError: no Prefect server answers, and none could be embedded.
        RunError: a task failed; artifacts that were published before stay published.
    """
    settings, changed = _parted(sections)
    loaded = _loaded(profile, overrides, changed)
    where = None if store is None else opened(store).location
    kinds = [until] if isinstance(until, str) else until
    with shown(progress) if reporter is None else nullcontext(reporter) as told:
        on_prefect = (has_a_server() or not in_notebook()) if prefect is None else prefect
        result = api.run(loaded, until=kinds, store=where, prefect=on_prefect, reporter=told, **settings)
    location = store_url(where, loaded.execution)
    return FinishedRun(result.run_id, result.rows, result.refs, Store(location), loaded)


def _loaded(
    profile: str | Path | Profile | Mapping[str, Any],
    overrides: Iterable[str] | Mapping[str, Any],
    sections: Mapping[str, Any],
) -> Profile:
    given = overrides if isinstance(overrides, Mapping) else dict(map(parse_override, overrides))
    merged = {**given, **sections}
    if isinstance(profile, Profile):
        if merged:
            raise UsageError(
                f"profile {profile.name!r} is loaded already, and nothing replaces its values any more; pass "
                "its name or path, or load it with these overrides"
            )
        return profile
    if isinstance(profile, Mapping):
        return profile_of(profile, overrides=merged)
    return load_profile(profile, merged)


def _parted(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Part settings of the machine from sections of the profile."""
    settings = {name: value for name, value in given.items() if name in api.Settings.__annotations__}
    sections = {name: value for name, value in given.items() if name not in settings}
    known = [*Profile.model_fields, *api.Settings.__annotations__]
    for name, value in sections.items():
        if name not in Profile.model_fields:
            hint = suggestion(name, known, known_as="sections and settings")
            raise UsageError(f"run: {name}={value!r:.60} is no section of a profile and no setting{hint}")
    return settings, sections
