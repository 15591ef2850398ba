"""References: what people call artifacts and runs; and lists of runs.

    kind/name[@v3|@prod|@latest]    a version, an alias, or the highest label whose artifact exists
    [kind/]3f09ab…                  a fingerprint, or the first 6 or more of its hexadecimal digits

A run is `latest`, an id or the first 4 or more of its characters, a name, a tag, or an artifact that it made.
A column of a list is named in full (`audit.bytes_per_token`), or by its last part where that fits one name
only; of a metric and a parameter of one name it is the metric, and `parameter:audit.max_premium` the other.
"""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate, pairwise
from operator import and_, eq
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store.labels import Names
from tokmill.tasks.store.layout import PREFIX_CHARS, RECORD_FILE, Layout
from tokmill.tasks.store.names import is_kind, is_name, shortened
from tokmill.tasks.store.record import (
    Record,
    Tombstone,
    read_record,
    read_tombstone,
    tombstone,
    tombstones,
)
from tokmill.tasks.store.rows import scalar_of
from tokmill.tasks.store.runs import Run, read_run, run_path
from tokmill.tasks.store.snapshot import Row

if TYPE_CHECKING:
    from tokmill.tasks.store.catalog import Catalog

_NAMED = re.compile(r"(?P<kind>[^/@]+)/(?P<name>[^@]+?)(@(?P<label>[^@]+))?")
_HEX = re.compile(r"[0-9a-f]{6,64}")
FIELDS: Final = ("started", "seconds", "name", "profile", "state", "num_made", "peak_bytes")
"""What runs can be sorted by, besides metrics and parameters."""
_NAMES: Final = """
    SELECT 'metric' AS of, name FROM (SELECT DISTINCT name FROM run_metrics)
    UNION ALL SELECT 'parameter', name FROM (SELECT DISTINCT name FROM run_parameters)
    ORDER BY ALL
"""
_SECONDS: Final = "date_diff('millisecond', r.started, r.ended) / 1000"
_RUNS: Final = """
    SELECT r.run_id, r.attempt, r.name, r.profile, r.experiment, coalesce(t.tags, []) AS tags, r.state,
           r.message, strftime(r.started, '%Y-%m-%dT%H:%M:%SZ') AS started,
           strftime(r.ended, '%Y-%m-%dT%H:%M:%SZ') AS ended,
           {seconds} AS seconds,
           r.num_made, r.num_cached, r.num_waited, r.peak_bytes, r.started_by, r.user_name, r.host, r.tokmill,
           r.git_commit, r.git_dirty, r.url{columns}
    FROM runs r LEFT JOIN ({tags}) t USING (run_id){joins}
    WHERE (r.is_latest OR $attempts)
      AND coalesce(r.state = $state, true) AND coalesce(r.profile = $profile, true)
      AND coalesce(r.experiment = $experiment, true) AND coalesce(r.started >= $since::TIMESTAMP, true)
      AND coalesce(list_contains(t.tags, $tag), $tag IS NULL){complete}
    ORDER BY {order}
    LIMIT {limit}
"""
TAGS_OF_RUNS: Final = """
    SELECT run_id, list(text ORDER BY text) AS tags
    FROM (SELECT run_id, text, arg_max(action, moment) AS latest
          FROM (SELECT run_id, tag AS text, 'tag' AS action, moment FROM run_tags
                UNION ALL SELECT run_id, text, action, moment FROM run_annotations)
          WHERE action <> 'note' GROUP BY ALL)
    WHERE latest = 'tag' GROUP BY run_id
"""
"""The tags that runs have now, by run; runs without any are left out."""
_FEWEST_CHARS = 4
_SHORT_CHARS = 8
_LATEST_RUNS = "SELECT run_id, name FROM runs WHERE is_latest ORDER BY started DESC, run_id"
_MADE = """
    SELECT a.run_id, a.how = 'made' AS made FROM run_artifacts a JOIN runs r USING (run_id, attempt)
    WHERE a.fingerprint = $fingerprint AND coalesce(a.content_digest = $content, true)
    ORDER BY made DESC, CASE WHEN a.how = 'made' THEN r.started END DESC, r.started, a.run_id
"""


def resolve(layout: Layout, reference: str, *, removed: bool = False) -> ArtifactRef:
    """Return the artifact that `reference` names; if there is none, the error suggests the nearest names."""
    named = _NAMED.fullmatch(reference)
    if named and is_kind(named["kind"]) and is_name(named["name"]):
        return _by_name(layout, named["kind"], named["name"], named["label"] or "latest", removed=removed)
    if _HEX.fullmatch(reference.lower()):
        return _by_prefix(layout, reference.lower(), removed=removed)
    raise StoreError(
        f"{shortened(reference)} names no artifact: use kind/name, kind/name@v3, kind/name@alias, or at "
        f"least 6 hexadecimal digits of a fingerprint{_nearest(reference, Names(layout).references())}"
    )


def _by_name(layout: Layout, kind: str, name: str, label: str, *, removed: bool) -> ArtifactRef:
    names = Names(layout)
    labels, full = names.labels(kind, name), f"{kind}/{name}"
    versions = names.published(kind, name) or (labels if removed else {})
    if label == "latest" and not versions:
        if _HEX.fullmatch(name.lower()):
            return _by_prefix(layout, name.lower(), kind, removed=removed)
        for last, owner in reversed(labels.items()):
            if stone := tombstone(layout, kind, owner):
                raise StoreError(f"{full} has no version any more; {last} was {stone.words}")
        near = _nearest(full, names.references())
        raise StoreError(f"there is no artifact {full} in {layout.location}{near}")
    label = next(reversed(versions)) if label == "latest" else label
    called = labels | names.aliases(kind, name)
    if label not in called:
        near = _nearest(label, [*called]) or f"; it has {', '.join(called)}"
        near = near if called else _nearest(full, names.references())
        raise StoreError(f"there is no {full}@{label}{near}")
    if not called[label]:
        raise StoreError(f"{full}@{label} was never finished; run the profile that makes it")
    if (layout.artifact(kind, called[label]) / RECORD_FILE).is_file():  # maybe made under another name first
        return read_record(layout.artifact(kind, called[label])).ref.model_copy(update={"name": name})
    stone = tombstone(layout, kind, called[label])
    if stone is not None and removed:
        return stone.record.ref.model_copy(update={"name": name})
    if stone is not None:
        raise StoreError(f"{full}@{label} was {stone.words}")
    raise StoreError(
        f"{full}@{label} was given to {called[label][:PREFIX_CHARS]}, which is no longer in the store (or "
        "was never finished); run the profile that made it again"
    )


def _by_prefix(layout: Layout, prefix: str, kind: str | None = None, *, removed: bool) -> ArtifactRef:
    start, unreadable = prefix[:PREFIX_CHARS], list[StoreError]()
    records, stones = dict[str, Record](), dict[str, Tombstone]()
    for path in [path for path in layout.artifacts() if path.name.startswith(start)]:
        try:
            record = read_record(path)
            records[record.fingerprint] = record
        except StoreError as error:  # which is told only if there is no other
            unreadable.append(error)
    for path in tombstones(layout, start):
        try:
            stone = read_tombstone(path)
            stones[stone.record.fingerprint] = stone
        except StoreError as error:
            unreadable.append(error)
    past = {fingerprint: stone.record for fingerprint, stone in stones.items()} if removed else {}
    fitting = [
        record
        for fingerprint, record in (past | records).items()
        if kind in (None, record.kind) and fingerprint.startswith(prefix)
    ]
    if len(fitting) == 1:
        return fitting[0].ref
    if fitting:
        several = ", ".join(f"{each.reference} ({each.fingerprint[:PREFIX_CHARS]})" for each in fitting)
        raise StoreError(
            f"fingerprint prefix {prefix} fits {len(fitting)} artifacts: {several}; use more digits"
        )
    if len(unreadable) == 1:
        raise unreadable[0]
    for fingerprint, stone in stones.items():
        if fingerprint.startswith(prefix):
            raise StoreError(f"{stone.record.reference} ({prefix}) was {stone.words}")
    what = kind or "artifact"
    raise StoreError(f"no {what} in {layout.location} has a fingerprint that begins with {prefix}")


def _nearest(wanted: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(wanted, known, n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(near)}?" if near else ""


class HasCatalog(Protocol):
    """A store, as far as it is asked for here."""

    layout: Layout
    catalog: "Catalog"


class Column(NamedTuple):
    """A column of a list: a metric, a parameter, or one of `FIELDS`; `prefix` as it was named."""

    of: Literal["metric", "parameter", "field"]
    name: str
    prefix: str = ""

    @property
    def label(self) -> str:
        """What it is called in a list, where a metric may have the same name."""
        return self.prefix + self.name


@dataclass(frozen=True)
class RunFilter:
    """Which runs are listed; None for all.

    `tag` is one that a run has now, and `since` the moment from which on it began. With `attempts`, each
    attempt is listed; else a run once, in its latest one.
    """

    state: str | None = None
    profile: str | None = None
    experiment: str | None = None
    tag: str | None = None
    since: str | None = None
    attempts: bool = False


class Order(NamedTuple):
    """How a list is sorted; runs without a value come last, those with some of `lost` behind all others."""

    by: Column
    descending: bool
    lost: Column | None = None


NEWEST: Final = Order(Column("field", "started"), descending=True)


def find_columns(catalog: "Catalog", wanted: Iterable[str]) -> list[Column]:
    """Return the columns of these names."""
    names = list(wanted)
    if all(name in FIELDS for name in names):
        return [Column("field", name) for name in names]
    known = [Column(row["of"], row["name"]) for row in catalog.query(_NAMES)]
    return [_column(name, known) for name in names]


def _column(wanted: str, known: Sequence[Column]) -> Column:
    if wanted in FIELDS:
        return Column("field", wanted)
    prefix = wanted[: wanted.find(":") + 1] if wanted.startswith(("metric:", "parameter:")) else ""
    if prefix:
        wanted = wanted.removeprefix(prefix)
        known = [column._replace(prefix=prefix) for column in known if f"{column.of}:" == prefix]
    exact = [column for column in known if column.name == wanted]
    fitting = exact or [column for column in known if column.name.endswith(f".{wanted}")]
    if len({column.name for column in fitting}) == 1:
        return fitting[0]  # metrics come first
    if fitting:
        several = ", ".join(dict.fromkeys(column.name for column in fitting))
        raise StoreError(f"{wanted!r} fits several metrics and parameters: {several}; name one of them")
    names = [*FIELDS, *(column.name for column in known)]
    near = difflib.get_close_matches(wanted, [*names, *(name.rpartition(".")[2] for name in names)], n=3)
    hint = f"; did you mean {' or '.join(dict.fromkeys(near))}?" if near else ""
    raise StoreError(f"no run has a metric or parameter {wanted!r}{hint}")


def list_runs(
    catalog: "Catalog",
    where: RunFilter = RunFilter(),
    columns: Sequence[Column] = (),
    order: Order = NEWEST,
    limit: int | None = None,
    *,
    complete: bool = False,
) -> list[Row]:
    """Return one row per run; with `complete`, only those that have a value to be sorted by."""
    sorting = [order.by, *([order.lost] if order.lost else [])]
    shown = [*dict.fromkeys(column for column in (*columns, *sorting) if column.of != "field")]
    value = {column: f"v{n}.value" for n, column in enumerate(shown)}
    field = _SECONDS if order.by.name == "seconds" else f"r.{order.by.name}"
    keys = [value[order.by], value[order.by].replace("value", "text")] if order.by in value else [field]
    way = "DESC" if order.descending else "ASC"
    lost = [f"coalesce({value[order.lost]}, 0) > 0"] if order.lost else []
    ordered = [
        *lost,
        *(f"{key} {way} NULLS LAST" for key in keys),
        "r.started DESC",
        "r.run_id",
        "r.attempt DESC",
    ]
    joins = [
        f" LEFT JOIN run_{column.of}s v{n} ON v{n}.run_id = r.run_id AND v{n}.name = $name{n}"
        + (f" AND v{n}.attempt = r.attempt" if column.of == "metric" else "")
        for n, column in enumerate(shown)
    ]
    sql = _RUNS.format(
        columns="".join(f", v{n}.value AS value{n}, v{n}.text AS text{n}" for n in range(len(shown))),
        seconds=_SECONDS,
        tags=TAGS_OF_RUNS,
        joins="".join(joins),
        order=", ".join(ordered),
        complete=f" AND {keys[-1]} IS NOT NULL" if complete else "",
        limit="ALL" if limit is None else int(limit),
    )
    names = {f"name{n}": column.name for n, column in enumerate(shown)}
    return [_row(row, shown) for row in catalog.query(sql, vars(where) | names)]


def _row(row: Row, shown: Sequence[Column]) -> Row:
    pairs = [(row.pop(f"value{n}"), row.pop(f"text{n}")) for n in range(len(shown))]
    values = [None if text is None else scalar_of(number, text) for number, text in pairs]
    return {**row, "values": dict(zip([column.label for column in shown], values, strict=True))}


def find_run(store: HasCatalog, reference: str) -> Run:
    """Return the run that `reference` names."""
    return read_run(run_path(store.layout.runs, find_run_id(store, reference)))


def find_run_id(store: HasCatalog, reference: str) -> str:
    """Return the id of the run that `reference` names."""
    with suppress(StoreError):  # which cannot be an id
        if run_path(store.layout.runs, reference).is_file():
            return reference
    runs = store.catalog.query(_LATEST_RUNS)
    if not runs:
        raise StoreError(f"{store.layout.location} has no runs; make one with `tokmill run PROFILE`")
    named = runs if reference == "latest" else [row for row in runs if row["name"] == reference]
    if named:
        return str(named[0]["run_id"])
    tags = tags_of_runs(store.catalog)
    if tagged := [row for row in runs if reference in tags.get(row["run_id"], ())]:
        return _only(f"tag {reference}", tagged, "name one by its id")
    begin = [row for row in runs if str(row["run_id"]).startswith(reference.lower())]
    if len(reference) >= _FEWEST_CHARS and begin:
        return _only(reference, begin, "use more of the id, or the run's name")
    if "/" in reference:
        if run_id := run_of(store, resolve(store.layout, reference)):
            return run_id
        raise StoreError(
            f"no run in {store.layout.location} has {reference}: it was made by a command, or elsewhere"
        )
    ids = short_ids(store, [str(row["run_id"]) for row in runs[:3]])
    latest = ", ".join(f"{run_id} ({row['name']})" for run_id, row in zip(ids, runs, strict=False))
    near = _nearest(reference, list(dict.fromkeys(repr(row["name"]) for row in runs)))
    near = near or f"; the latest are {latest}"
    raise StoreError(f"there is no run {reference!r} in {store.layout.location}{near}")


def run_of(store: HasCatalog, ref: ArtifactRef) -> str | None:
    """Return the id of the run that made an artifact, or else of the first that had it; None without any."""
    found = store.catalog.query(_MADE, {"fingerprint": ref.fingerprint, "content": ref.content_digest})
    return str(found[0]["run_id"]) if found else None


def short_ids(store: HasCatalog, run_ids: Sequence[str]) -> list[str]:
    """Return ids in as few characters, at least 8, as tell them from every other run of the store.

    The runs that a schedule creates at once have ids that begin alike.
    """
    known = sorted({*run_ids, *(str(row["run_id"]) for row in store.catalog.query(_LATEST_RUNS))})
    alike = [sum(accumulate(map(eq, *pair), and_)) for pair in pairwise(known)]
    least = dict(zip(known, map(max, [0, *alike], [*alike, 0]), strict=False))  # [] has no pair
    return [run_id[: max(_SHORT_CHARS, least[run_id] + 1)] for run_id in run_ids]


def _only(reference: str, runs: Sequence[Row], fix: str) -> str:
    if len(runs) > 1:
        several = ", ".join(f"{row['run_id']} ({row['name']})" for row in runs[:5])
        more = ", …" if len(runs) > 5 else ""
        raise StoreError(f"{reference!r} fits {len(runs)} runs: {several}{more}; {fix}")
    return str(runs[0]["run_id"])


def tags_of_runs(catalog: "Catalog") -> Mapping[str, Sequence[str]]:
    """Return run id → its tags, sorted; runs without any are left out."""
    return {row["run_id"]: row["tags"] for row in catalog.query(TAGS_OF_RUNS)}
