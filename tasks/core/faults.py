"""Faults of the machine, told from faults of the data.

Whether a document is bad must follow from its bytes alone: the same file read with more memory, or on a day
when the disk answers, would otherwise give another corpus under the same fingerprint. So a reader gives a
verdict only on what is no fault of the machine: a lack of memory or room, a device or a network share that
fails, a signal. Those stop the run. Several libraries report a lack of memory with the exceptions that they
have for damaged data; they are known by their words.
"""

import errno
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tokmill.tasks.core.errors import MachineError, SourceError, StoreError, TaskError

T = TypeVar("T")

# What a damaged file can bring about: its own numbers, used as positions and sizes, are out of range.
_OF_DATA = frozenset({errno.EINVAL, errno.ERANGE, errno.EOVERFLOW})
# What the user can mend: a name, a right, something else in the file's place.
_OF_USE = {
    errno.ENOENT: "give the file back, or take it out of the source",
    errno.ENOTDIR: "give the file back, or take it out of the source",
    errno.EISDIR: "name the files in it",
    errno.ELOOP: "mend the link, or exclude it",
    errno.ENAMETOOLONG: "shorten the name",
    errno.EACCES: "give the right to read it, or exclude it",
    errno.EPERM: "give the right to read it, or exclude it",
}
# How libraries say that they got no memory: zstd; lz4's binding, and lz4; C++; zlib; Arrow, of its threads.
_NO_MEMORY = (
    "not enough memory",
    "Failed to resize buffer",
    "allocation_failed",
    "bad_alloc",
    "Error -4 ",
    "Failed to launch worker thread",
)
_KINDS = (
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
# What a damaged file asks for can be more than any process can address: then it is no lack of memory.
_ASKED = re.compile(r"alloc of size (\d+) failed")
_NO_MACHINES = 1 << 47
_PARSED_BYTES = 400  # that Python's parser takes at most for a byte of source, roughly


def is_of_machine(error: BaseException) -> bool:
    """Whether an exception says that the machine failed, and so nothing about the data that was read."""
    if isinstance(error, MemoryError):  # Arrow's own is one, too
        asked = _ASKED.search(str(error))
        return asked is None or int(asked[1]) < _NO_MACHINES
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno not in _OF_DATA
    return any(words in str(error) for words in _NO_MEMORY)


def unreadable(path: Path, error: OSError) -> TaskError:
    """Return the error for a file that the system does not let us read."""
    said = error.strerror or str(error)
    fix = _OF_USE.get(error.errno or 0)
    if fix is not None:
        return SourceError(f"{path} cannot be read ({said}); {fix}")
    return MachineError(
        f"{path} cannot be read ({said}); that says nothing about its text: see to the disk or the "
        "network that it lies on, and run again"
    )


def refuse_irregular(path: Path, status: os.stat_result | None = None) -> None:
    """Refuse what is no regular file: opening a FIFO waits for a writer, and a device may never end.

    Raises:
        SourceError: it is a FIFO, a socket or a device.
        OSError: nothing can be known about it.
    """
    mode = (status or path.stat()).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        kind = next((word for test, word in _KINDS if test(mode)), "no regular file")
        raise SourceError(f"{path} is {kind}; save what it gives in a file and name that")


def broken(file: Path, problem: str, error: Exception) -> TaskError:
    """Return the error for a file of an artifact that cannot be read: the machine's fault, or the file's."""
    if is_of_machine(error) and getattr(error, "errno", None) not in _OF_USE:
        return MachineError(
            f"{file} cannot be read ({error}), which says nothing about what it holds: free memory, or see "
            "to the disk or the network that it lies on, and run again"
        )
    return StoreError(f"{file}: {problem} ({error}); verify the artifact")


def out_of_memory(where: str, error: BaseException) -> MachineError:
    """Return the error for work that got no memory."""
    said = f" ({error})" if str(error) else ""
    return MachineError(
        f"{where}: memory ran out{said}; run with fewer --workers or on a machine with more memory, or lower "
        "max_document_bytes where single documents are that long"
    )


def call_parser(parse: Callable[[], T], num_bytes: int) -> T:
    """Return what a parser gives that raises MemoryError also where the text is too deep for it.

    Args:
        parse: the call.
        num_bytes: of the text.

    Raises:
        RecursionError: the text is too deep for the parser: there would have been memory.
        MemoryError: there is none.
    """
    try:
        return parse()
    except MemoryError:
        bytes(_PARSED_BYTES * num_bytes)  # raises MemoryError itself where there is no such memory
    try:
        return parse()
    except MemoryError:
        message = "the text is nested too deeply for the parser"
        raise RecursionError(message) from None
