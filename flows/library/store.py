"""`tokmill.Store`: a store as a person at a notebook asks it."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tokmill.flows.errors import UsageError, suggestion
from tokmill.flows.figures import size
from tokmill.flows.library.artifact import Artifact, Lineage
from tokmill.flows.library.table import Table
from tokmill.flows.run.machine import open_store
from tokmill.tasks.store import Store as ArtifactStore
from tokmill.tasks.store.layout import DEFAULT_STORE
from tokmill.tokenizer.core import markup

if TYPE_CHECKING:
    from tokmill.tasks.store.lineage import Direction

_ARTIFACTS = """
    SELECT l.kind || '/' || l.name || '@' || l.label AS artifact, l.kind, l.name, l.label,
           (SELECT coalesce(list(x.alias ORDER BY x.alias), []) FROM aliases x
            WHERE (x.kind, x.name, x.fingerprint) = (l.kind, l.name, l.fingerprint)) AS aliases,
           a.stage, a.num_files, a.num_bytes, a.ended, a.seconds, l.fingerprint, a.content_digest
    FROM labels l JOIN artifacts a ON (a.kind, a.fingerprint) = (l.kind, l.fingerprint)
    WHERE coalesce(l.kind = $kind, true) AND coalesce(l.name = $name, true)
    ORDER BY l.kind, l.name, l.number
"""
_METRICS = """
    SELECT l.kind || '/' || l.name || '@' || l.label AS artifact, m.name AS metric, m.value, m.text
    FROM labels l JOIN metrics m USING (fingerprint)
    WHERE coalesce(l.kind = $kind, true) AND coalesce(l.name = $name, true)
    ORDER BY l.kind, l.name, l.number, m.name
"""
_SUMMARY = """
    SELECT l.kind, count(*) AS versions, sum(a.num_bytes)::BIGINT AS bytes, max(a.ended) AS newest
    FROM labels l JOIN artifacts a ON (a.kind, a.fingerprint) = (l.kind, l.fingerprint)
    GROUP BY l.kind ORDER BY l.kind
"""


class Store(ArtifactStore):
    """The artifacts, runs and figures of a store: a folder, or a URL such as `s3://bucket/team`.

        store = tokmill.Store("tokmill-store")
        store.runs().to_pandas()
        store.find("tokenizer/quickstart@prod").open().encode("text")

    A store need not exist yet: one without artifacts has empty tables.

    Args:
        location: folder or URL; by default TOKMILL_STORE, else `tokmill-store` in the working directory.

    Raises:
        UsageError: a URL with a password in it, a kind of URL that is not supported, or a file.
    """

    def __init__(self, location: str | Path | None = None) -> None:
        named = location or os.environ.get("TOKMILL_STORE") or DEFAULT_STORE
        super().__init__(open_store(named).root)

    def __reduce__(self) -> tuple[type["Store"], tuple[str]]:
        return Store, (self.location,)

    def runs(  # noqa: PLR0913 - each is an option of its own, said by its name
        self,
        *,
        experiment: str | None = None,
        tag: str | None = None,
        profile: str | None = None,
        state: str | None = None,
        since: str | None = None,
        attempts: bool = False,
        show: Sequence[str] = (),
        sort: str = "started",
        best: int | None = None,
        lowest: bool | None = None,
    ) -> Table:
        """Return one row per run, the latest first, failed ones too; as `tokmill runs`.

        Args:
            experiment: only runs of this experiment.
            tag: only runs with this tag.
            profile: only runs of this profile.
            state: only runs in this state, e.g. `completed`.
            since: only runs that began since then: `7d`, `12h`, `2026-11-24`.
            attempts: every attempt of a run that was retried, not only the last.
            show: metrics and parameters as further columns: `audit.bytes_per_token`, or `bytes_per_token`
                where that fits one alone; `balance.temperature`.
            sort: a metric or a parameter to sort by, which is shown, too.
            best: only so many of the best by `sort`.
            lowest: whether the lowest value comes first; by default what is better, where the name says it.

        Raises:
            UsageError: there is no such metric or parameter, or it is not known whether high or low is
                better.
        """
        from tokmill.flows.library.runs import find_runs, table_of  # noqa: PLC0415
        from tokmill.tasks.store.references import RunFilter  # noqa: PLC0415

        where = RunFilter(state, profile, experiment, tag, since, attempts)
        runs = find_runs(self, where, sort, show, best=best, lowest=lowest)
        return table_of(runs, f"Runs of {self.location}")

    def artifacts(self, kind: str | None = None, name: str | None = None) -> Table:
        """Return one row per version of an artifact: labels, aliases, sizes in bytes, seconds, digests.

        Args:
            kind: e.g. `tokenizer`; all by default.
            name: e.g. `quickstart`; all by default.

        Raises:
            UsageError: the store has other kinds, but not this one.
        """
        return self._versions(_ARTIFACTS, "Artifacts", kind, name)

    def metrics(self, kind: str | None = None, name: str | None = None) -> Table:
        """Return one row per metric of a version: `value` as a number, `text` as it was recorded.

        Args and Raises are those of `artifacts`.
        """
        return self._versions(_METRICS, "Metrics", kind, name)

    def _versions(self, query: str, title: str, kind: str | None, name: str | None) -> Table:
        table = Table(self.catalog.table(query, {"kind": kind, "name": name}), title)
        kinds = self.layout.kinds()
        if kind is not None and not len(table) and kinds and kind not in kinds:
            raise UsageError(
                f"kind={kind!r}: {self.location} has none{suggestion(kind, kinds, known_as='kinds')}"
            )
        return table

    def find(self, reference: str) -> Artifact:
        """Return an artifact by its name, version, alias or fingerprint.

        Args:
            reference: `kind/name` for the latest version, `kind/name@v3`, `kind/name@prod`, or at least 6
                digits of a fingerprint.

        Raises:
            UsageError: there is no such artifact; the message suggests similar names.
        """
        return Artifact.find(self, reference)

    __getitem__ = find

    def lineage(self, reference: str, direction: "Direction" = "up") -> Lineage:
        """Return what an artifact was made from (`up`), what was made from it (`down`), or `both`.

        Raises:
            UsageError: as `find`.
        """
        return self.find(reference).lineage(direction)

    def sql(self, query: str) -> Table:
        """Return the rows of an SQL query over the catalog; `SHOW TABLES` lists its tables.

        Raises:
            StoreError: it is not one SELECT statement, or DuckDB rejects it.
        """
        return Table(self.catalog.ask_table(query), "Rows")

    def __repr__(self) -> str:
        return f"Store({self.location!r})"

    def _repr_html_(self) -> str:
        if not self.root.is_dir():
            return markup.sheet(f"Store {self.location}", markup.note("It does not exist yet."))
        columns = ("kind", "versions", "bytes", "newest")
        cells = [
            (row["kind"], f"{row['versions']:,}", size(row["bytes"]), f"{row['newest']:%Y-%m-%d %H:%M}")
            for row in self.catalog.query(_SUMMARY)
        ]
        return markup.sheet(f"Store {self.location}", markup.grid(columns, cells, columns[1:3]))


def opened(store: "str | Path | ArtifactStore | None") -> Store:
    """Return a store that is given in any way."""
    if isinstance(store, Store):
        return store
    return Store(store.location if isinstance(store, ArtifactStore) else store)
