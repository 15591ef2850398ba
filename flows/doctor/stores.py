"""The health of the store and of the machine: runs, locks, leftovers, rights, memory, disks."""

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
from tokmill.tasks.core.context import quarter_of_the_ram, total_memory, usable_cores
from tokmill.tasks.core.errors import TaskError
from tokmill.tasks.store import Store, disk
from tokmill.tasks.store.leases import live_leases
from tokmill.tasks.store.removal import leftovers
from tokmill.tokenizer.jit.machine_code import CARRIED, kernel_cache

_PROBE = ".doctor"
_CREDENTIALS = "check the credentials in the environment and their rights for this bucket"
_LITTLE_MEMORY = 2 << 30
_LITTLE_DISK = 2 << 30
_NO_DISK = 64 << 20


def look_at_store(location: str) -> Part:
    """Return the health of a store, if it exists."""
    part = Part("store", figures={"location": location}, facts={"location": location})
    try:
        store = open_store(location)
        if "://" in store.location and not _look_at_rights(part, store.location):
            return part
        if "://" not in store.location and not _look_at_folder(part, store.root):
            return part
        _look_inside(part, store)
    except (UsageError, TaskError) as error:
        part.fail("unusable", str(error), "name another one with --store or TOKMILL_STORE, or mend this one")
    return part


def _look_at_folder(part: Part, root: Path) -> bool:
    """Look at a store's folder; whether there is one to look into."""
    look_at_disk(
        part, "disk", root, "remove what nothing needs (`tokmill store gc`), or name a store elsewhere"
    )
    if not root.exists():
        part.facts["contents"] = "none: it is made by the first run"
        part.figures["exists"] = False
        return False
    part.figures |= {"exists": True, "writable": os.access(root, os.W_OK | os.X_OK)}
    if not part.figures["writable"]:
        what = f"{root} cannot be written to, so runs fail there; it can be read"
        part.note("read-only", what, "give this user the right to write, or run into another --store")
    return True


def _look_inside(part: Part, store: Store) -> None:
    (row,) = store.catalog.query("SELECT count(*) AS n, coalesce(sum(num_bytes), 0) AS b FROM artifacts")
    working, lying = len(live_leases(store.layout)), leftovers(store.layout, (), older_than_days=0)
    damaged = [each for each in lying if store.layout.damaged in each.path.parents]
    others, held = [each for each in lying if each not in damaged], _num_locks(store)
    part.figures |= {
        "num_artifacts": int(row["n"]),
        "num_bytes": int(row["b"]),
        "num_running": working,
        "num_locks": held,
        "num_leftovers": len(lying),
        "leftover_bytes": sum(each.num_bytes for each in lying),
        "num_damaged": len(damaged),
    }
    part.facts["contents"] = f"{counted(int(row['n']), 'artifact')}, {size(int(row['b']))}"
    part.facts["at work"] = f"{counted(working, 'run')}, {counted(held, 'lock')} held"
    part.facts["leftovers"] = f"{len(lying)}, {size(part.figures['leftover_bytes'])}"
    if damaged:
        part.note(
            "damaged",
            f"{counted(len(damaged), 'artifact')} were set aside as damaged, the last in {damaged[-1].path}",
            "check the disk; `tokmill store verify` reads the rest, `tokmill store gc --apply` removes them",
        )
    if others:
        taken = size(sum(each.num_bytes for each in others))
        what = f"{counted(len(others), 'leftover')} of dead processes take {taken}"
        part.note("leftovers", what, "`tokmill store gc --apply` removes them")


def _num_locks(store: Store) -> int:
    """Return how many locks a process holds; a file without an owner means nothing."""
    if "://" in store.location or not os.access(store.root, os.W_OK):
        return 0
    names = [entry.name for entry in disk.entries(store.layout.locks) if entry.name.endswith(".lock")]
    return sum(_is_held(store.layout.locks / name) for name in names)


def _is_held(path: Path) -> bool:
    import fcntl  # noqa: PLC0415 - not on every system

    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    return False


def _look_at_rights(part: Part, url: str) -> bool:
    """Try what a store in a bucket needs; whether it can be read."""
    from tokmill.tasks.remote import location, objects  # noqa: PLC0415 - only for stores behind a URL

    probe, data = location.joined(url, f"{_PROBE}-{uuid.uuid4().hex}"), b"tokmill doctor"
    steps: dict[str, Callable[[], object]] = {
        "list": lambda: next(iter(objects.listed(url, recursive=False)), None),
        "create": lambda: objects.create(probe, data),
        "create only once": lambda: _refused(lambda: objects.create(probe, b"another")),
        "read": lambda: objects.read(probe, 1 << 10),
        "remove": lambda: objects.remove([probe]),
    }
    rights = {name: _tried(step) for name, step in steps.items()}
    part.figures["rights"] = {name: problem is None for name, problem in rights.items()}
    part.facts["rights"] = ", ".join(name for name, problem in rights.items() if problem is None) or "none"
    if rights["list"] is not None:
        part.fail("unreachable", f"{url} cannot be listed ({rights['list']})", _CREDENTIALS)
        return False
    if rights["create"] is not None:
        what = f"{url} may not be written to ({rights['create']}), so runs fail there; it can be read"
        part.note("read-only", what, _CREDENTIALS)
    elif rights["create only once"] is not None:
        what = f"{url} takes a second object where one is, so that two writers may both win"
        part.fail("conditional", what, "use a service with conditional writes (If-None-Match), such as S3")
    elif rights["remove"] is not None:
        part.note("remove", f"{url}: objects may not be removed ({rights['remove']})", _CREDENTIALS)
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
    part = Part("machine")
    cores, memory = usable_cores(), total_memory()
    part.figures = {
        "cores": cores,
        "memory_bytes": memory,
        "counts_bytes": quarter_of_the_ram(),
        "load": round(os.getloadavg()[0], 2),
    }
    part.facts = {
        "cores": f"{cores}, load {os.getloadavg()[0]:.1f}",
        "memory": f"{size(memory)}, of which counts may take {size(quarter_of_the_ram())}",
    }
    if memory < _LITTLE_MEMORY:
        part.note("memory", f"there are only {size(memory)} of memory", "set execution.workers = 1")
    if os.getloadavg()[0] > 2 * cores:
        what = f"the load is {os.getloadavg()[0]:.1f} on {counted(cores, 'core')}: other work competes"
        part.note("load", what, "wait for it, or set execution.workers to fewer")
    look_at_disk(part, "temporary files", Path(tempfile.gettempdir()), "set TMPDIR to a folder with more")
    _look_at_kernels(part)
    return part


def look_at_disk(part: Part, name: str, folder: Path, fix: str) -> None:
    """Add the free space of a folder's disk to a part."""
    there = next(place for place in (folder, *folder.parents) if place.exists())
    free = shutil.disk_usage(there).free
    part.figures[f"{name.replace(' ', '_')}_free_bytes"] = free
    part.facts[name] = f"{size(free)} free in {folder}"
    if free < _NO_DISK:
        part.fail(f"disk {name}", f"there are only {size(free)} free in {folder}", fix)
    elif free < _LITTLE_DISK:
        part.note(f"disk {name}", f"there are only {size(free)} free in {folder}", fix)


def _look_at_kernels(part: Part) -> None:
    folder, lasts = kernel_cache()
    num_files, num_carried = (sum(1 for _ in kept.rglob("*.nbc")) for kept in (folder, CARRIED))
    figures = {"folder": str(folder), "num_compiled": num_files, "num_carried": num_carried, "lasts": lasts}
    part.figures["kernel_cache"] = figures
    carried = f", {num_carried:,} in the wheel" if num_carried else ""
    part.facts["kernel cache"] = f"{counted(num_files, 'compiled kernel')} in {folder}{carried}"
    if not lasts:
        what = f"no cache of machine code can be written to, so each process compiles again, into {folder}"
        part.note("kernel cache", what, "set TOKMILL_KERNEL_CACHE to a folder that can be written to")
