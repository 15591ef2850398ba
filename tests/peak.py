"""The peak of a process's memory, for tests that measure a process of their own."""

from pathlib import Path

_STATUS = Path("/proc/self/status")


def peak_bytes() -> int:
    """Return the most memory that this process has had resident, on Linux.

    `ru_maxrss` would say what its parent had when it was started, if that was more.
    """
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) << 10
