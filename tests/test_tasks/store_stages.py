"""Small real stages that the store's tests make artifacts with."""

from pathlib import Path

import duckdb

from tokmill.tasks.core.stage import Account, External, Outcome, Params, Request, Stage
from tokmill.tasks.store import Store
from tokmill.tasks.store.rows import content_id
from tokmill.tasks.store.tables import TABLES

"""Where the laws of stores are tested; in a bucket, with TOKMILL_EVERYTHING."""


class WriteParams(Params):
    text: str = "abc"
    times: int = 1


def write(params, *, out, seed=""):
    """Write the text, and a second file below a folder."""
    (out / "text.txt").write_text(seed + params.text * params.times)
    (out / "parts").mkdir()
    (out / "parts" / "first.txt").write_text(params.text[:1])
    became = {"kept": params.times, "end": 1}
    account = Account(source="web", unit="documents", num_in=params.times, added={"end": 1}, became=became)
    return Outcome(metrics={"num_chars": len(params.text) * params.times}, accounts=[account])


WRITE = Stage(verb="write", task="write", kind="text", version=1, params=WriteParams, run=write)


def join(params, *, out, first: Path, rest: list[Path]):
    """Join the texts of other artifacts."""
    parts = [(path / "text.txt").read_text() for path in (first, *rest)]
    (out / "text.txt").write_text(params.text.join(parts))
    return Outcome(metrics={"num_parts": len(parts)})


JOIN = Stage(verb="join", task="join", kind="joined", version=1, params=WriteParams, run=join)


def ask(name="one", *, seed="", **params):
    """A request for a text."""
    return Request(WRITE, name, WriteParams(**params), {"seed": External(digest=f"seed:{seed}", value=seed)})


def ask_joined(name, first, *rest, **params):
    """A request for several texts in one."""
    return Request(JOIN, name, WriteParams(**params), {"first": first, "rest": list(rest)})


def stage_of(run, kind="text"):
    """A stage that does something else; it shares no artifact with the others."""
    return Stage(verb=run.__name__, task="write", kind=kind, version=1, params=WriteParams, run=run)


def left_over(root):
    """What lies in the temporary folder of a store."""
    return sorted(path.name for path in (root / ".tmp").iterdir()) if (root / ".tmp").exists() else []


def catalog_rows(store: Store, *extra_tables: str):
    """Every row of the catalog, table by table; one question, since each opens the catalog."""
    tables = [f"(SELECT list(t ORDER BY t) FROM {name} t) AS {name}" for name in (*TABLES, *extra_tables)]
    (rows,) = store.catalog.query(f"SELECT {', '.join(tables)}")
    return {name: found or [] for name, found in rows.items()}


def give_one_number(store: Store, one: tuple[str | None, str], other: tuple[str | None, str]) -> Store:
    """Let two contents (kind and digest) of a store in a folder have one number in its catalog, by chance.

    Returns:
        The store, opened again.
    """
    store.catalog.rebuild()
    numbers = {"kept": content_id(*one), "changed": content_id(*other)}
    num_changed = 0
    with duckdb.connect(str(store.catalog.path)) as catalog:
        for table, columns in TABLES.items():
            for column in columns.keys() & {"content_id", "input_content_id"}:
                changed = f"UPDATE {table} SET {column} = $kept WHERE {column} = $changed"
                num_changed += catalog.execute(changed, numbers).fetchall()[0][0]
    assert num_changed
    return Store.open(store.root)
