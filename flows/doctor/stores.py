"""The store's health: who uses it, what lies about, and what this machine may do with it."""

import os
import uuid
from collections.abc import Callable
from pathlib import Path

from tokmill.flows.doctor.machine import look_at_disk
from tokmill.flows.doctor.report import Part
from tokmill.flows.errors import UsageError
from tokmill.flows.figures import counted, size
from tokmill.flows.run.machine import open_store
from tokmill.tasks.core.errors import TaskError
from tokmill.tasks.store import Store, disk
from tokmill.tasks.store.leases import live_leases
from tokmill.tasks.store.removal import leftovers

_PROBE = ".doctor"
_CREDENTIALS = "check the credentials in the environment and their rights for this bucket"


def look_at_store(location: str) -> Part:
    """Return the health of a store; one that does not exist yet has none."""
    found = Part("store", figures={"location": location}, facts={"location": location})
    try:
        store = open_store(location)
        if "://" in store.location and not _look_at_rights(found, store.location):
            return found
        if "://" not in store.location and not _look_at_folder(found, store.root):
            return found
        _look_inside(found, store)
    except (UsageError, TaskError) as error:
        found.fail("unusable", str(error), "name another one with --store or TOKMILL_STORE, or mend this one")
    return found


def _look_at_folder(found: Part, root: Path) -> bool:
    """Look at a store's folder; whether there is one to look into."""
    look_at_disk(found, "disk", root, "remove what nothing needs (`tokmill gc`), or name a store elsewhere")
    if not root.exists():
        found.facts["contents"] = "none: it is made by the first run"
        found.figures["exists"] = False
        return False
    found.figures |= {"exists": True, "writable": os.access(root, os.W_OK | os.X_OK)}
    if not found.figures["writable"]:
        found.note(
            "read-only",
            f"{root} cannot be written to, so runs fail there; it can be read",
            "give this user the right to write, or run into another --store",
        )
    return True


def _look_inside(found: Part, store: Store) -> None:
    rows = store.catalog.query("SELECT count(*) AS n, coalesce(sum(num_bytes), 0) AS b FROM artifacts")
    number, num_bytes = int(rows[0]["n"]), int(rows[0]["b"])
    working = live_leases(store.layout)
    lying = leftovers(store.layout, (), older_than_days=0)
    damaged = [one for one in lying if store.layout.damaged in one.path.parents]
    held = _held_locks(store)
    found.figures |= {
        "num_artifacts": number,
        "num_bytes": num_bytes,
        "num_running": len(working),
        "num_locks": len(held),
        "num_leftovers": len(lying),
        "leftover_bytes": sum(one.num_bytes for one in lying),
        "num_damaged": len(damaged),
    }
    found.facts["contents"] = f"{counted(number, 'artifact')}, {size(num_bytes)}"
    found.facts["at work"] = f"{counted(len(working), 'run')}, {counted(len(held), 'lock')} held"
    found.facts["leftovers"] = f"{len(lying)}, {size(found.figures['leftover_bytes'])}"
    if damaged:
        found.note(
            "damaged",
            f"{counted(len(damaged), 'artifact')} were set aside as damaged, the last in {damaged[-1].path}",
            "check the disk; `tokmill verify --deep` reads what is left, `tokmill gc --apply` removes them",
        )
    if len(lying) > len(damaged):
        found.note(
            "leftovers",
            f"{counted(len(lying) - len(damaged), 'leftover')} of dead processes take "
            f"{size(sum(one.num_bytes for one in lying if one not in damaged))}",
            "`tokmill gc --apply` removes them",
        )


def _held_locks(store: Store) -> list[str]:
    """Return the names of the locks that a process holds; a file without an owner means nothing."""
    if "://" in store.location or not os.access(store.root, os.W_OK):
        return []
    names = [entry.name for entry in disk.entries(store.layout.locks) if entry.name.endswith(".lock")]
    return [name for name in names if _is_held(store.layout.locks / name)]


def _is_held(path: Path) -> bool:
    import fcntl  # noqa: PLC0415 - not on every system

    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _look_at_rights(found: Part, url: str) -> bool:
    """Try what a store in a bucket needs; whether it can be read."""
    from tokmill.tasks import remote  # noqa: PLC0415 - only for stores behind a URL

    probe, data = remote.joined(url, f"{_PROBE}-{uuid.uuid4().hex}"), b"tokmill doctor"
    steps: dict[str, Callable[[], object]] = {
        "list": lambda: next(iter(remote.listed(url, recursive=False)), None),
        "create": lambda: remote.create(probe, data),
        "create only once": lambda: _refused(lambda: remote.create(probe, b"another")),
        "read": lambda: remote.read(probe, 1 << 10),
        "remove": lambda: remote.remove([probe]),
    }
    rights = {name: _tried(step) for name, step in steps.items()}
    found.figures["rights"] = {name: problem is None for name, problem in rights.items()}
    found.facts["rights"] = ", ".join(name for name, problem in rights.items() if problem is None) or "none"
    if rights["list"] is not None:
        found.fail("unreachable", f"{url} cannot be listed ({rights['list']})", _CREDENTIALS)
        return False
    if rights["create"] is not None:
        found.note(
            "read-only",
            f"{url} may not be written to ({rights['create']}), so runs fail there; it can be read",
            _CREDENTIALS,
        )
    elif rights["create only once"] is not None:
        found.fail(
            "conditional",
            f"{url} takes a second object where one is, so that two writers may both win",
            "use a service with conditional writes (If-None-Match), such as S3",
        )
    elif rights["remove"] is not None:
        found.note("remove", f"{url}: objects may not be removed ({rights['remove']})", _CREDENTIALS)
    return True


def _tried(step: Callable[[], object]) -> str | None:
    """Return why a step is not possible; None if it is."""
    try:
        step()
    except (OSError, TaskError) as error:
        return getattr(error, "strerror", None) or str(error)
    return None


def _refused(create: Callable[[], object]) -> None:
    """Raise OSError if an object could be created a second time."""
    try:
        create()
    except FileExistsError:
        return
    raise OSError("it was created a second time")
