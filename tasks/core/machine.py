"""What a stage may take of the machine that it works on.

It decides time and space, never a byte of an artifact. So it is no parameter of a stage and has no part in a
fingerprint: whoever runs a stage sets it around the call.
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
    """Let stages that run in this block take so much memory for what grows with their input."""
    return context_value(_MEMORY_BYTES, memory_bytes)


def memory_budget() -> int:
    """Return how many bytes of memory a stage may take for what grows with its input.

    A quarter of the RAM where nobody said otherwise.
    """
    said = _MEMORY_BYTES.get()
    return quarter_of_the_ram() if said is None else said


def quarter_of_the_ram() -> int:
    """Return a quarter of the memory that this process may have: the machine's, or its control group's."""
    return _total_bytes() // _SHARE_OF_THE_RAM


def _total_bytes() -> int:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = _CONTROL_GROUP.read_text("ascii").strip()
    except OSError:
        return total
    return min(total, int(limit)) if limit.isdecimal() else total
