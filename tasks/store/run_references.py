"""References: the forms in which people name a run.

    latest               the run that began last
    5f0c2a31-…           an id, or the first 4 or more of its characters, if they fit one run
    smoke · temperature 5    a name; of several runs of that name, the latest
    winner               a tag that one run has
    tokenizer/smoke@v2   an artifact: the run that made it

If nothing is found, the error suggests the nearest names.
"""

import difflib
from collections.abc import Sequence
from itertools import accumulate, pairwise
from operator import and_, eq
from typing import Any, TypeAlias

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store.annotations import tags_of_runs
from tokmill.tasks.store.runs import Run, read_run, run_path
from tokmill.tasks.store.store import Store

Row: TypeAlias = dict[str, Any]

_FEWEST_CHARS = 4
_SHORT_CHARS = 8
_RUNS = "SELECT run_id, name FROM runs WHERE is_latest ORDER BY started DESC, run_id"
_MADE = """
    SELECT a.run_id, a.how = 'made' AS made FROM run_artifacts a JOIN runs r USING (run_id, attempt)
    WHERE a.fingerprint = $fingerprint AND coalesce(a.content_digest = $content, true)
    ORDER BY made DESC, CASE WHEN a.how = 'made' THEN r.started END DESC, r.started, a.run_id
"""


def find_run(store: Store, reference: str) -> Run:
    """Return the run that `reference` names.

    Raises:
        StoreError: there is no such run, or several fit; or its record cannot be read.
    """
    return read_run(run_path(store.layout.runs, find_run_id(store, reference)))


def find_run_id(store: Store, reference: str) -> str:
    """Return the id of the run that `reference` names.

    Raises:
        StoreError: as `find_run`.
    """
    if _is_id(store, reference):
        return reference
    runs = store.catalog.query(_RUNS)
    if not runs:
        raise StoreError(f"{store.location} has no runs; make one with `tokmill run PROFILE`")
    if reference == "latest":
        return str(runs[0]["run_id"])
    named = [row["run_id"] for row in runs if row["name"] == reference]
    if named:
        return str(named[0])
    tags = tags_of_runs(store.catalog)
    tagged = [row for row in runs if reference in tags.get(row["run_id"], ())]
    if tagged:
        return _only(f"tag {reference}", tagged, "name one by its id")
    begin = [row for row in runs if str(row["run_id"]).startswith(reference.lower())]
    if len(reference) >= _FEWEST_CHARS and begin:
        return _only(reference, begin, "use more of the id, or the run's name")
    if "/" in reference:
        return _of_artifact(store, reference)
    raise StoreError(f"there is no run {reference!r} in {store.location}{_nearest(store, reference, runs)}")


def run_of(store: Store, ref: ArtifactRef) -> str | None:
    """Return the id of the run that made an artifact, or else of the first that had it; None without any."""
    found = store.catalog.query(_MADE, {"fingerprint": ref.fingerprint, "content": ref.content_digest})
    return str(found[0]["run_id"]) if found else None


def short_ids(store: Store, run_ids: Sequence[str]) -> list[str]:
    """Return ids in as few characters, at least 8, as tell them from every other run of the store.

    The runs that a schedule creates at once have ids that begin alike.
    """
    known = sorted({*run_ids, *(str(row["run_id"]) for row in store.catalog.query(_RUNS))})
    alike = [sum(accumulate(map(eq, *pair), and_)) for pair in pairwise(known)]
    least = dict(zip(known, map(max, [0, *alike], [*alike, 0]), strict=False))  # [] has no pair
    return [run_id[: max(_SHORT_CHARS, least[run_id] + 1)] for run_id in run_ids]


def _is_id(store: Store, reference: str) -> bool:
    try:
        return run_path(store.layout.runs, reference).is_file()
    except StoreError:  # which cannot be an id
        return False


def _only(reference: str, runs: Sequence[Row], fix: str) -> str:
    if len(runs) > 1:
        several = ", ".join(f"{row['run_id']} ({row['name']})" for row in runs[:5])
        more = ", …" if len(runs) > 5 else ""
        raise StoreError(f"{reference!r} fits {len(runs)} runs: {several}{more}; {fix}")
    return str(runs[0]["run_id"])


def _of_artifact(store: Store, reference: str) -> str:
    ref = store.resolve(reference)
    found = run_of(store, ref)
    if found is None:
        raise StoreError(
            f"no run in {store.location} has {reference}: it was made by a command, or elsewhere"
        )
    return found


def _nearest(store: Store, wanted: str, runs: Sequence[Row]) -> str:
    """Return a hint with the nearest names, or the latest runs."""
    names = list(dict.fromkeys(str(row["name"]) for row in runs))
    near = difflib.get_close_matches(wanted, names, n=3, cutoff=0.5)
    if near:
        return f"; did you mean {' or '.join(map(repr, near))}?"
    ids = short_ids(store, [str(row["run_id"]) for row in runs[:3]])
    latest = ", ".join(f"{run_id} ({row['name']})" for run_id, row in zip(ids, runs, strict=False))
    return f"; the latest are {latest}"
