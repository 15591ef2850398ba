"""Distinguish faults of the machine from faults of the data.

Whether a document is bad must depend on its bytes alone. Otherwise the same file, read with more memory or
from a disk that works again, would give another corpus under the same fingerprint. So faults of the machine
(no memory, a full disk, a failing device or network share, a signal) stop the run, and never count as a bad
document. Some libraries raise the same exception for a lack of memory as for damaged data; those cases are
recognized by their messages.
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

MOST_NAMED_BYTES = 256 << 20
"""The most bytes of a file that a person names and that is read whole."""

# Damage to a file can cause these: positions and sizes that are read from it are out of range.
_OF_DATA = frozenset({errno.EINVAL, errno.ERANGE, errno.EOVERFLOW})
# These pass, in time: a device or network share that fails, a name server that is down, what is busy.
_PASSING = frozenset(
    getattr(errno, name)
    for name in (
        *("EIO", "EAGAIN", "EBUSY", "EINTR", "ESTALE", "EREMOTEIO", "ETIMEDOUT", "ECONNREFUSED"),
        *("ECONNRESET", "ECONNABORTED", "EPIPE", "ENETDOWN", "ENETUNREACH", "EHOSTDOWN", "EHOSTUNREACH"),
        *("ENOTCONN", "ENODEV", "ENXIO", "ENOLCK"),
    )
    if hasattr(errno, name)
)
# The user can fix these: a wrong name, a missing permission, a folder in place of a file.
_OF_USE = {
    errno.ENOENT: "restore the file, or remove it from the source",
    errno.ENOTDIR: "restore the file, or remove it from the source",
    errno.EISDIR: "name the files in it",
    errno.ELOOP: "repair the link, or exclude it",
    errno.ENAMETOOLONG: "shorten the name",
    errno.EACCES: "grant permission to read it, or exclude it",
    errno.EPERM: "grant permission to read it, or exclude it",
}
# Messages of libraries that could not allocate memory: zstd; lz4's binding, and lz4; C++; zlib; Arrow (for a
# thread).
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
# A damaged file can request more than any process can address; that is not a lack of memory.
_ASKED = re.compile(r"alloc of size (\d+) failed")
_NO_MACHINES = 1 << 47
_PARSED_BYTES = 400  # Python's parser uses roughly this much memory per byte of source, at most


def is_of_machine(error: BaseException) -> bool:
    """Whether an exception was caused by the machine, and not by the data that was read."""
    if isinstance(error, MemoryError):  # Arrow's is a subclass
        asked = _ASKED.search(str(error))
        return asked is None or int(asked[1]) < _NO_MACHINES
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno not in _OF_DATA
    return any(words in str(error) for words in _NO_MEMORY)


def may_pass(error: BaseException) -> bool:
    """Whether the same work may succeed a little later: a device, a network or a service failed for a moment.

    What lies in the request, the data or the machine's size does not pass: a wrong parameter, a bad document,
    a failed gate, accounts that do not add up, no memory, a full disk.
    """
    if not isinstance(error, MachineError | StoreError | SourceError | OSError):
        return False
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        if isinstance(cause, ConnectionError | TimeoutError):
            return True
        if isinstance(cause, OSError) and cause.errno in _PASSING:
            return True
        cause = cause.__cause__
    return False


def unreadable(path: object, error: OSError) -> TaskError:
    """Return the error for a file that the operating system, or an object that its service, does not give."""
    said = error.strerror or str(error)
    fix = _OF_USE.get(error.errno or 0)
    if "://" in str(path):
        return _unreadable_object(str(path), error)
    if fix is not None:
        return SourceError(f"{path} cannot be read ({said}); {fix}")
    return MachineError(
        f"{path} cannot be read ({said}); its text may be intact: check the disk or the "
        "network share, and run again"
    )


def _unreadable_object(url: str, error: OSError) -> TaskError:
    said = error.strerror or str(error)
    if error.errno == errno.ESTALE:
        return SourceError(f"{url} changed while it was read; run again when nothing writes to it")
    if error.errno in _OF_USE:
        fix = "" if ";" in said else f"; {_OF_USE[error.errno]}"
        return SourceError(f"{url} cannot be read ({said}){fix}")
    return MachineError(
        f"{url} cannot be read ({said}); its text may be intact: check the network and the service, and run "
        "again"
    )


def refuse_irregular(path: Path, status: os.stat_result | None = None) -> None:
    """Reject anything but a regular file: opening a FIFO waits for a writer, and a device may never end.

    Raises:
        SourceError: it is a FIFO, a socket or a device.
        OSError: its status cannot be read.
    """
    mode = (status or path.stat()).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        kind = next((word for test, word in _KINDS if test(mode)), "not a regular file")
        raise SourceError(f"{path} is {kind}; save its output in a file and name that file")


def read_named(path: Path) -> bytes:
    """Return the bytes of a file that a person named, such as a list.

    Raises:
        SourceError: it is not a regular file, or has more than `MOST_NAMED_BYTES`.
        OSError: it cannot be read.
    """
    status = path.stat()
    refuse_irregular(path, status)
    if status.st_size > MOST_NAMED_BYTES:
        most = MOST_NAMED_BYTES >> 20
        raise SourceError(
            f"{path} has {status.st_size:,} bytes, and such a file at most {most} MiB; split it"
        )
    return path.read_bytes()


def broken(file: Path, problem: str, error: Exception) -> TaskError:
    """Return the error for an unreadable file of an artifact, whether the machine or the file is at fault."""
    if is_of_machine(error) and getattr(error, "errno", None) not in _OF_USE:
        return MachineError(
            f"{file} cannot be read ({error}); its content may be intact: free memory, or check "
            "the disk or the network share, and run again"
        )
    return StoreError(f"{file}: {problem} ({error}); verify the artifact")


def out_of_memory(where: str, error: BaseException) -> MachineError:
    """Return the error for work that ran out of memory."""
    said = f" ({error})" if str(error) else ""
    return MachineError(
        f"{where}: memory ran out{said}; run with fewer --workers or on a machine with more memory, or lower "
        "max_document_bytes where single documents are that long"
    )


def call_parser(parse: Callable[[], T], num_bytes: int) -> T:
    """Call a parser that raises MemoryError both for too little memory and for text nested too deeply.

    Args:
        parse: calls the parser.
        num_bytes: size of the text.

    Raises:
        RecursionError: the text is nested too deeply; there was enough memory.
        MemoryError: memory ran out.
    """
    try:
        return parse()
    except MemoryError:
        bytes(_PARSED_BYTES * num_bytes)  # raises MemoryError if there is not that much memory
    try:
        return parse()
    except MemoryError:
        message = "the text is nested too deeply for the parser"
        raise RecursionError(message) from None
