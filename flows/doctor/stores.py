"""The store's health: who uses it, what lies about, and what this machine may do with it."""

import os
import shutil
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path

from tokmill.flows.doctor.report import Part
from tokmill.flows.errors import UsageError
from tokmill.flows.figures import counted, size
from tokmill.flows.run.machine import open_store
from tokmill.tasks.core.context import quarter_of_the_ram, total_memory
from tokmill.tasks.core.errors import TaskError
from tokmill.tasks.store import Store, disk
from tokmill.tasks.store.leases import live_leases
from tokmill.tasks.store.removal import leftovers
from tokmill.tokenizer.jit.machine_code import kernel_cache

_PROBE = ".doctor"
_CREDENTIALS = "check the credentials in the environment and their rights for this bucket"
_LITTLE_MEMORY = 2 << 30
_LITTLE_DISK = 2 << 30
_NO_DISK = 64 << 20


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


def look_at_machine() -> Part:
    """Return what the machine has, for this process."""
    found = Part("machine")
    cores, memory = len(os.sched_getaffinity(0)), total_memory()
    found.figures = {
        "cores": cores,
        "memory_bytes": memory,
        "counts_bytes": quarter_of_the_ram(),
        "load": round(os.getloadavg()[0], 2),
    }
    found.facts = {
        "cores": f"{cores}, load {os.getloadavg()[0]:.1f}",
        "memory": f"{size(memory)}, of which counts may take {size(quarter_of_the_ram())}",
    }
    if memory < _LITTLE_MEMORY:
        found.note("memory", f"there are only {size(memory)} of memory", "set execution.workers = 1")
    if os.getloadavg()[0] > 2 * cores:
        found.note(
            "load",
            f"the load is {os.getloadavg()[0]:.1f} on {counted(cores, 'core')}: other work competes",
            "wait for it, or set execution.workers to fewer",
        )
    look_at_disk(found, "temporary files", Path(tempfile.gettempdir()), "set TMPDIR to a folder with more")
    _look_at_kernels(found)
    return found


def look_at_disk(found: Part, name: str, folder: Path, fix: str) -> None:
    """Add the free space of a folder's disk to a part."""
    there = next(place for place in (folder, *folder.parents) if place.exists())
    free = shutil.disk_usage(there).free
    found.figures[f"{name.replace(' ', '_')}_free_bytes"] = free
    found.facts[name] = f"{size(free)} free in {folder}"
    if free < _NO_DISK:
        found.fail(f"disk {name}", f"there are only {size(free)} free in {folder}", fix)
    elif free < _LITTLE_DISK:
        found.note(f"disk {name}", f"there are only {size(free)} free in {folder}", fix)


def _look_at_kernels(found: Part) -> None:
    folder, lasts = kernel_cache()
    num_files = sum(1 for _ in folder.rglob("*.nbc")) if folder.is_dir() else 0
    found.figures["kernel_cache"] = {"folder": str(folder), "num_compiled": num_files, "lasts": lasts}
    found.facts["kernel cache"] = f"{counted(num_files, 'compiled kernel')} in {folder}"
    if not lasts:
        found.note(
            "kernel cache",
            f"no cache of machine code can be written to, so each process compiles anew, into {folder}",
            "set TOKMILL_KERNEL_CACHE to a folder that can be written to",
        )
