"""Cores, memory, disks, and the cache of machine code."""

import os
import shutil
import tempfile
from pathlib import Path

from tokmill.flows.doctor.report import Part
from tokmill.flows.figures import counted, size
from tokmill.tasks.core.context import quarter_of_the_ram, total_memory
from tokmill.tokenizer.jit.machine_code import kernel_cache

_LITTLE_MEMORY = 2 << 30
_LITTLE_DISK = 2 << 30
_NO_DISK = 64 << 20


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
