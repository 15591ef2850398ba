"""The memory budget of a stage.

The budget affects speed and memory, but never the bytes of an artifact. So it is not a parameter of a stage
and not part of a fingerprint: the caller of a stage sets it with a `with` block around the call.
"""

import os
from contextlib import AbstractContextManager
from contextvars import ContextVar
from pathlib import Path

from tokmill.tasks.core.context import context_value

_SHARE_OF_THE_RAM = 4
_CONTROL_GROUP = Path("/sys/fs/cgroup/memory.max")

_MEMORY_BYTES: ContextVar[int | None] = ContextVar("memory_bytes", default=None)


def memory_limited_to(memory_bytes: int | None) -> AbstractContextManager[None]:
    """Set the memory budget of the stages that run in this `with` block; None for the default."""
    return context_value(_MEMORY_BYTES, memory_bytes)


def memory_budget() -> int:
    """Return how many bytes a stage may use for data that grows with its input.

    The default is a quarter of the RAM.
    """
    limit = _MEMORY_BYTES.get()
    return quarter_of_the_ram() if limit is None else limit


def quarter_of_the_ram() -> int:
    """Return a quarter of the memory available to this process: the machine's, or its control group's."""
    return _total_bytes() // _SHARE_OF_THE_RAM


def _total_bytes() -> int:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = _CONTROL_GROUP.read_text("ascii").strip()
    except OSError:
        return total
    return min(total, int(limit)) if limit.isdecimal() else total
