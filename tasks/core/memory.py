"""How much memory this process can still get, before it asks for it.

On Linux it is what the kernel calls available (free, or in caches that can be dropped), and no more than
what the control group leaves: its limit without what its processes hold. Elsewhere it is the memory of the
machine. The figure is good for refusing what cannot fit; others may take the memory a moment later.
"""

from pathlib import Path

from tokmill.tasks.core.context import total_memory

_AVAILABLE = "MemAvailable:"
_GROUPS = (
    # files of control groups: the limit, the use, and what of the use is a cache of files
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    (
        "memory/memory.limit_in_bytes",
        "memory/memory.usage_in_bytes",
        "memory/memory.stat",
        "total_inactive_file",
    ),
)


def available_memory(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the bytes that this process can still get, about.

    Args:
        proc: where Linux shows the machine's memory.
        groups: where it shows control groups.
    """
    found = [room for names in _GROUPS if (room := _room(groups, *names)) is not None]
    return max(0, min([_of_machine(proc), *found]))


def _of_machine(proc: Path) -> int:
    for line in _text(proc / "meminfo").splitlines():
        if line.startswith(_AVAILABLE):
            return int(line.split()[1]) << 10
    return total_memory()


def _room(groups: Path, limit: str, used: str, statistics: str, cached: str) -> int | None:
    """Return what a control group leaves; None if there is no limit."""
    most, taken = (_text(groups / name).strip() for name in (limit, used))
    if not most.isdecimal() or not taken.isdecimal():
        return None
    entries = dict(line.split(" ", 1) for line in _text(groups / statistics).splitlines() if " " in line)
    return int(most) - int(taken) + int(entries.get(cached, 0))


def _text(file: Path) -> str:
    try:
        return file.read_text("ascii")
    except OSError:
        return ""
