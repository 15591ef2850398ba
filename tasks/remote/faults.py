"""Which faults pass, and are tried again with growing pauses until TOKMILL_RETRY_SECONDS (120) have gone by.

No answer, a cut connection, a timeout, 408, 409, 429 and 5xx pass; anything else is raised at once. All are
OSErrors, as those of local files are.
"""

import errno
import logging
import os
import random
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from tokmill.tokenizer.core.stopping import raise_if_stopped

T = TypeVar("T")

RETRY_SECONDS: Final = "TOKMILL_RETRY_SECONDS"
_DEFAULT_SECONDS = 120.0
_QUIET_SECONDS = 1.0
_REPEATED_SECONDS = 30.0
_SAID: dict[str, float] = {}  # by bucket: until when nothing more is said
_LOCK = threading.Lock()
_LOG = logging.getLogger(__name__)
_NO_BUCKET = "the bucket does not exist; create it, or correct the name"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 10.0
_PASSING_STATUS = frozenset({408, 409, 425, 429})
_PASSING_ERRNO = frozenset({
    errno.EAGAIN, errno.EBUSY, errno.ECONNABORTED, errno.ECONNREFUSED, errno.ECONNRESET, errno.EHOSTUNREACH,
    errno.ENETDOWN, errno.ENETRESET, errno.ENETUNREACH, errno.EPIPE, errno.EREMOTEIO, errno.ETIMEDOUT,
})  # fmt: skip
_PASSING_CODES = frozenset({
    "InternalError", "OperationAborted", "RequestTimeout", "ServiceUnavailable", "SlowDown", "Throttling",
    "ThrottlingException", "ConditionalRequestConflict", "RequestTimeoutException",
})  # fmt: skip
# By name, since none of these libraries need be installed: of botocore, aiohttp, urllib3, fsspec and azure.
_PASSING_NAMES = frozenset({
    "ClientConnectionError", "ClientOSError", "ClientPayloadError", "ConnectTimeoutError",
    "ConnectionClosedError", "ConnectionError", "EndpointConnectionError", "FSTimeoutError",
    "HTTPClientError", "IncompleteRead", "IncompleteReadError", "ProxyConnectionError",
    "ReadTimeoutError", "ResponseParserError",
    "ResponseStreamingError", "ServerDisconnectedError", "ServerTimeoutError", "ServiceRequestError",
    "ServiceResponseError",
})  # fmt: skip
_NO_CREDENTIALS = frozenset({
    "NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "ProfileNotFound",
    "TokenRetrievalError", "DefaultCredentialsError", "ClientAuthenticationError",
})  # fmt: skip


class UnreachableError(OSError):
    """A service gave no proper answer for as long as it was asked."""


class ChangedError(OSError):
    """An object is not, or no longer, in the state that was asked for."""


def persevering(work: Callable[[], T], url: str) -> T:
    """Return what `work` returns, which is called again as long as its faults are passing ones.

    Args:
        work: may be called several times.
        url: what it is about, for messages.

    Raises:
        FileNotFoundError, PermissionError, FileExistsError, ChangedError, OSError: a fault that stays.
        UnreachableError: one that passes, but did not for TOKMILL_RETRY_SECONDS.
        StopRequested: the run is being stopped.
    """
    began, longest = time.monotonic(), _FIRST_PAUSE
    until = began + _seconds()
    while True:
        pause = longest * random.uniform(0.5, 1.0)  # noqa: S311 - so that clients do not come back together
        try:
            return work()
        except Exception as error:
            fault = _translated(error, url)
            if fault is None:
                raise
            if not isinstance(fault, UnreachableError) or time.monotonic() + pause > until:
                raise fault from error
            _warn(fault, url, began, until)
        raise_if_stopped()
        time.sleep(pause)
        longest = min(2 * longest, _LONGEST_PAUSE)


def _warn(fault: OSError, url: str, began: float, until: float) -> None:
    """Say why nothing happens, once it has been so for a second, unless it was said just now."""
    now, place = time.monotonic(), "/".join(url.split("/", 3)[:3])
    with _LOCK:
        if now < max(began + _QUIET_SECONDS, _SAID.get(place, 0.0)):
            return
        _SAID[place] = now + _REPEATED_SECONDS
    _LOG.warning(
        "%s: %s; trying again for up to %.0f s (%s)", place, fault.strerror, until - now, RETRY_SECONDS
    )


def _seconds() -> float:
    try:
        return float(os.environ.get(RETRY_SECONDS) or _DEFAULT_SECONDS)
    except ValueError:
        return _DEFAULT_SECONDS


def _translated(error: Exception, url: str) -> OSError | None:
    chain = [error]  # and its causes: libraries wrap what the service said
    while len(chain) < 10 and isinstance(cause := chain[-1].__cause__, Exception):
        chain.append(cause)
    names = {cls.__name__ for each in chain for cls in type(each).__mro__}
    if isinstance(error, UnreachableError | ChangedError | FileExistsError):
        return error
    if names & _NO_CREDENTIALS:
        said = f"there are no valid credentials in the environment ({error}); set those of the service there"
        return PermissionError(errno.EACCES, said, url)
    status, code = _status(chain), _s3_code(chain)
    if _passes(chain, names, status, code):
        return UnreachableError(errno.EIO, f"the service does not answer as it should ({_said(error)})", url)
    return _lasting(error, chain, status, code, url)


def _lasting(
    error: Exception, chain: list[Exception], status: int | None, code: str, url: str
) -> OSError | None:
    def is_a(kind: type[OSError]) -> bool:
        return any(isinstance(each, kind) for each in chain)

    fault: OSError | None = error if isinstance(error, OSError) else None
    refused = f"the service refuses it ({_said(error)})"
    if code == "NoSuchBucket":
        fault = FileNotFoundError(errno.ENOENT, _NO_BUCKET, url)
    elif status == 404 or is_a(FileNotFoundError):
        fault = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), url)
    elif status in (401, 403) or is_a(PermissionError):
        fault = PermissionError(errno.EACCES, f"{refused}; check the credentials and what they may do", url)
    elif status in (412, 416):  # 416: it is shorter than the range that was asked for
        fault = ChangedError(errno.ESTALE, "the object is not in the expected state", url)
    elif is_a(FileExistsError):
        fault = FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), url)
    elif status is not None:
        fault = OSError(errno.EPROTO, refused, url)
    return fault


def _passes(chain: list[Exception], names: set[str], status: int | None, code: str) -> bool:
    if names & _PASSING_NAMES:  # aiohttp gives some of its own faults a status
        return True
    if status is not None and code != "NotImplemented":
        return status >= 500 or status in _PASSING_STATUS or code in _PASSING_CODES
    kinds = (TimeoutError, ConnectionError, socket.gaierror)
    by_number = any(isinstance(each, OSError) and each.errno in _PASSING_ERRNO for each in chain)
    return by_number or any(isinstance(each, kinds) for each in chain)


def _status(chain: list[Exception]) -> int | None:
    for each in chain:
        response: Any = getattr(each, "response", None)
        if isinstance(response, dict):
            found = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            if isinstance(found, int):
                return found
        for name in ("status_code", "status", "code"):
            found = getattr(each, name, None)
            if isinstance(found, int) and 100 <= found < 600:
                return found
    return None


def _s3_code(chain: list[Exception]) -> str:
    for each in chain:
        response: Any = getattr(each, "response", None)
        if isinstance(response, dict):
            return str(response.get("Error", {}).get("Code", ""))
    return ""


def _said(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]
