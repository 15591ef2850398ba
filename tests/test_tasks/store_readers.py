"""Processes that read a store, and one that publishes into it all the time.

    python -m tests.test_tasks.store_readers write <store> <number>
    python -m tests.test_tasks.store_readers <how> <store>

The writer announces each artifact in the file `announced` beside the store once it is published; after the
first one it says so, and waits for a line. A reader reads that number, asks the store, and must see at least
so many artifacts, never fewer than before, and each of them whole. It says when it has its first answer, goes
on until `written` is there, asks a last time, and prints how often it asked and what it saw last.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.test_tasks.store_child import tell
from tests.test_tasks.store_stages import ask, ask_joined
from tokmill.tasks.store import Store, lineage
from tokmill.tasks.store.runs import RunArtifact

JOINED_EVERY = 5
_WHOLE = """
    SELECT (SELECT count(*) FROM artifacts) AS number,
           (SELECT count(*) FROM artifacts a ANTI JOIN labels l ON l.fingerprint = a.fingerprint) AS unnamed,
           (SELECT count(*) FROM artifacts a ANTI JOIN files f ON f.fingerprint = a.fingerprint) AS empty,
           (SELECT count(*) FROM artifacts a ANTI JOIN inputs i ON i.fingerprint = a.fingerprint) AS rootless,
           (SELECT count(*) FROM artifacts) - (SELECT count(DISTINCT fingerprint) FROM artifacts) AS doubled
"""


def write(root: Path, number: int) -> None:
    """Publish so many artifacts; every fifth is joined from the first, and has a run of its own."""
    store = Store.open(root)
    first = store.realize(ask("web/0", text="0")).ref
    announce(root, 1)
    tell("begun")
    sys.stdin.readline()
    for done in range(1, number + 1):
        if done % JOINED_EVERY:
            store.realize(ask(f"web/{done}", text=str(done)))
        else:
            run = f"run-{done}"
            store.catalog.add_run(run, profile="readers")
            ref = store.realize(ask_joined(f"all/{done}", first, text=str(done))).ref
            made = [RunArtifact(task="join", ref=ref, how="made")]
            store.catalog.finish_run(run, state="completed", artifacts=made)
        announce(root, done + 1)


def announce(root: Path, number: int) -> None:
    """Say that so many artifacts are published."""
    new = root.with_name("announced.part")
    new.write_text(str(number))
    new.replace(root.with_name("announced"))


def announced(root: Path) -> int:
    """The number of artifacts that are published for sure."""
    return int(root.with_name("announced").read_text())


def by_query(root: Path) -> int:
    """Ask the catalog, in this process."""
    (row,) = Store.open(root).catalog.query(_WHOLE)
    assert [row["unnamed"], row["empty"], row["rootless"], row["doubled"]] == [0, 0, 0, 0], row
    return int(row["number"])


def by_lineage(root: Path) -> int:
    """Follow the first artifact down, and up again from one that was made of it."""
    store = Store.open(root)
    graph = lineage(store, store.resolve("text/web/0"), "down")
    users = [node for node in graph.nodes.values() if node.kind == "joined"]
    for node in users[-1:]:
        up = lineage(store, store.resolve(node.title))
        assert graph.root in up.nodes
    return len(users) * JOINED_EVERY + 1


def by_listing(root: Path) -> int:
    """`tokmill ls`."""
    return len(_tokmill(root, "ls", "--all", "--json"))


def by_sql(root: Path) -> int:
    """`tokmill sql`."""
    (row,) = _tokmill(root, "sql", "SELECT count(*) AS number FROM artifacts", "--json")
    return int(row["number"])


def by_runs(root: Path) -> int:
    """`tokmill runs`."""
    ended = [row for row in _tokmill(root, "runs", "--limit", "0", "--json") if row["state"] == "completed"]
    return len(ended) * JOINED_EVERY + 1


READERS: dict[str, Callable[[Path], int]] = {
    "query": by_query,
    "lineage": by_lineage,
    "listing": by_listing,
    "sql": by_sql,
    "runs": by_runs,
}
SEES_EVERY = {"query": 1, "lineage": JOINED_EVERY, "listing": 1, "sql": 1, "runs": JOINED_EVERY}
"""Of how many artifacts a reader sees one more."""


def _tokmill(root: Path, *words: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "tokmill", *words, "--store", str(root)], capture_output=True, check=False
    )
    assert done.returncode == 0, (words, done.stderr.decode())
    return json.loads(done.stdout)


def read(how: str, root: Path) -> None:
    """Ask until everything is written, and once more."""
    least, asked, ended = 0, 0, False
    while not ended:
        ended = root.with_name("written").exists()
        sure = announced(root)
        sure -= (sure - 1) % SEES_EVERY[how]
        found = READERS[how](root)
        assert found >= max(sure, least), f"{how}: {found} found, {sure} announced, {least} seen before"
        if not asked:
            tell("answered")
        least, asked = found, asked + 1
    tell(f"{asked} {least}")


if __name__ == "__main__":
    what, place, *rest = sys.argv[1:]
    if what == "write":
        write(Path(place), int(rest[0]))
    else:
        read(what, Path(place))
