"""What single stages on columns have in common: the profile that they are a part of, and where it runs.

A stage on columns runs the DAG of a small profile, without Prefect, up to the artifact that is asked for.
What it is made from is found in the store, since the calls before have made it.
"""

import atexit
import os
import shutil
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tokmill.flows.errors import UsageError, suggestion
from tokmill.flows.library.api import AnyStore, run
from tokmill.flows.library.artifact import Artifact
from tokmill.flows.library.options import HoldoutOptions
from tokmill.flows.library.store import Store, opened
from tokmill.tasks.core.stage import Params
from tokmill.tasks.encode.stage import EncodeParams

_END = EncodeParams().end_of_document
_LOCK = threading.Lock()
_FOLDERS: list[Path] = []


@dataclass(frozen=True)
class Bench:
    """A profile in the making: a store, and sections; none for an artifact that was opened, not made here."""

    store: Store
    table: Mapping[str, Any]

    @classmethod
    def of(cls, store: AnyStore | None, **table: Any) -> "Bench":
        """Begin a profile; without a store, its artifacts last as long as the process."""
        return cls(scratch_store() if store is None else opened(store), table)

    def with_sections(self, **sections: Any) -> "Bench":
        """Return the profile with other sections; None changes nothing."""
        changed = {name: section for name, section in sections.items() if section is not None}
        return replace(self, table={**self.table, **changed})

    def made(self, kind: str, *, workers: int | None, progress: bool | None) -> Artifact:
        """Make the artifact of a kind, with what it needs."""
        names = self.table.get("train", {}).get("special_tokens", (_END,))
        # the default of `encode.end_of_document` need not be there yet
        alone = kind in ("tokenizer", "audit") and _END not in names
        table = {"encode": {"end_of_document": None}, **self.table} if alone else self.table
        done = run(table, until=kind, store=self.store, prefect=False, progress=progress, workers=workers)
        return Artifact(self.store, done.refs[kind])


class Made:
    """What a stage made, with figures.

    Attributes:
        artifact: the artifact, with its path and record.
        bench: the profile that made it; None for an opened artifact.
    """

    def __init__(self, artifact: Artifact, bench: Bench | None = None) -> None:
        self.artifact = artifact
        self.bench = bench

    @property
    def figures(self) -> dict[str, Any]:
        """The key figures of the artifact."""
        return dict(self.artifact.figures)


def held_out(holdout: float | HoldoutOptions | None) -> dict[str, Any] | None:
    """Return the section `[holdout]` of a share, or of parameters."""
    if holdout is None or isinstance(holdout, Mapping):
        return None if holdout is None else dict(holdout)
    return {"share": holdout}


def parted(what: str, options: Mapping[str, Any], *models: type[Params]) -> list[dict[str, Any]]:
    """Part keywords among the parameters of stages, in their order; raises UsageError for an unknown one."""
    owners = {name: model for model in reversed(models) for name in model.model_fields}
    for name, value in options.items():
        if name not in owners:
            hint = suggestion(name, owners, known_as="parameters")
            raise UsageError(f"{what}: {name}={value!r:.60} is no parameter{hint}")
    return [{name: value for name, value in options.items() if owners[name] is model} for model in models]


def scratch_store() -> Store:
    """Return the temporary store of this process."""
    with _LOCK:
        if not _FOLDERS or not _FOLDERS[0].is_dir():
            folder = Path(tempfile.mkdtemp(prefix="tokmill-"))
            _FOLDERS[:] = [folder]
            atexit.register(_remove, folder, os.getpid())
        return Store(_FOLDERS[0] / "store")


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def _renew_lock() -> None:
    """Replace the lock in a forked child: another thread may have held it."""
    global _LOCK  # noqa: PLW0603 - there is one per process
    _LOCK = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)
