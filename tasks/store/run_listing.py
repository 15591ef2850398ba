"""Lists of runs: filtered, and sorted by a metric, a parameter or a field of theirs.

A column is named in full (`audit.bytes_per_token`, `balance.temperature`), or by its last part where that
fits one name only. A name that a metric and a parameter share (`audit.max_premium`, measured and allowed) is
the metric's; `parameter:audit.max_premium` is the other. All comes from the catalog, so that a list of ten
thousand runs reads no record.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import Scalar
from tokmill.tasks.store.annotations import TAGS_OF_RUNS
from tokmill.tasks.store.catalog import Catalog
from tokmill.tasks.store.run_tables import scalar_of

Row: TypeAlias = dict[str, Any]

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

    Attributes:
        state: e.g. `failed`.
        profile: the profile's name.
        experiment: its name.
        tag: a tag that a run has now.
        since: a moment; runs that began before it are left out.
        attempts: whether each attempt is listed, or a run once, in its latest one.
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


def find_columns(catalog: Catalog, wanted: Iterable[str]) -> list[Column]:
    """Return the columns of these names.

    Raises:
        StoreError: no run has a metric or parameter of that name, or several fit it.
    """
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
    catalog: Catalog,
    where: RunFilter = RunFilter(),
    columns: Sequence[Column] = (),
    order: Order = NEWEST,
    limit: int | None = None,
    *,
    complete: bool = False,
) -> list[Row]:
    """Return one row per run.

    Args:
        catalog: of the store.
        where: which runs.
        columns: metrics and parameters to return, by name in `values` of each row; None where there is none.
        order: how they are sorted.
        limit: the most rows; None for all.
        complete: leave out runs that have no value to be sorted by.
    """
    sorting = [order.by, *([order.lost] if order.lost else [])]
    shown = [*dict.fromkeys(column for column in (*columns, *sorting) if column.of != "field")]
    picked = "".join(f", {_picked(place)}" for place in range(len(shown)))
    by = f"r.{order.by.name}" if order.by.of == "field" else f"v{shown.index(order.by)}.value"
    by = _SECONDS if by == "r.seconds" else by
    texts = [] if order.by.of == "field" else [f"v{shown.index(order.by)}.text"]
    way = "DESC" if order.descending else "ASC"
    keys = [f"coalesce(v{shown.index(order.lost)}.value, 0) > 0"] if order.lost else []
    keys += [f"{key} {way} NULLS LAST" for key in (by, *texts)]
    sql = _RUNS.format(
        columns=picked,
        seconds=_SECONDS,
        tags=TAGS_OF_RUNS,
        joins="".join(_joined(place, column) for place, column in enumerate(shown)),
        order=", ".join([*keys, "r.started DESC", "r.run_id", "r.attempt DESC"]),
        complete=f" AND {texts[0] if texts else by} IS NOT NULL" if complete else "",
        limit="ALL" if limit is None else int(limit),
    )
    given = {name: getattr(where, name) for name in RunFilter.__dataclass_fields__}
    names = {f"name{place}": column.name for place, column in enumerate(shown)}
    return [_row(row, shown) for row in catalog.query(sql, given | names)]


def _picked(place: int) -> str:
    return f"v{place}.value AS value{place}, v{place}.text AS text{place}"


def _joined(place: int, column: Column) -> str:
    table = "run_metrics" if column.of == "metric" else "run_parameters"
    attempt = f" AND v{place}.attempt = r.attempt" if column.of == "metric" else ""
    return (
        f" LEFT JOIN {table} v{place} ON v{place}.run_id = r.run_id AND v{place}.name = $name{place}{attempt}"
    )


def _row(row: Row, shown: Sequence[Column]) -> Row:
    """Return a row of the query with its values by name, as they were recorded; lists as their JSON."""
    values: Mapping[str, Any] = {
        column.label: _value(row.pop(f"value{place}"), row.pop(f"text{place}"))
        for place, column in enumerate(shown)
    }
    return {**row, "values": dict(values)}


def _value(number: float | None, text: str | None) -> Scalar | None:
    return None if text is None else scalar_of(number, text)
