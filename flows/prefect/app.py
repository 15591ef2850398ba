"""Prefect's application with access control, for `tokmill up` and the embedded server.

Started by `uvicorn --factory tokmill.flows.prefect.app:create_app`; configured by the environment variable
`HOSTS`.
"""

import asyncio
import base64
import binascii
import gc
import json
import os
import re
import sys
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tokmill.flows.prefect.guard import Application, Guard, Message, Receive, Scope, Send, origins

HOSTS = "TOKMILL_SERVER_HOSTS"  # names of the server with ports, separated by commas
_PAUSE_SECONDS = 0.5
HOW: Final = "tokmill.started_by"
USER: Final = "tokmill.user"
_ASKS = re.compile(r"(/api)?/(deployments/[0-9a-fA-F-]{36}/create_flow_run|flow_runs/?)")
_SIGNED_IN: Final = ("x-forwarded-user", "x-remote-user", "x-auth-request-user", "remote-user")
_MOST_BYTES: Final = 16 << 20
_MOST_CHARS: Final = 100


def protection(names: Sequence[str]) -> dict[str, str]:
    """Return the environment variables of a server with these names, and of its clients.

    With Prefect's defaults, any web page can read the server's answers and make changes without a token.
    """
    return {
        HOSTS: ",".join(names),
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": ",".join(origins(names)),
        "PREFECT_SERVER_CSRF_PROTECTION_ENABLED": "true",
        "PREFECT_CLIENT_CSRF_SUPPORT_ENABLED": "true",
    }


def create_app() -> Application:
    """Return the application, which answers only requests to the names in `HOSTS`."""
    gc.disable()  # an eighth of the start; `collect_elsewhere` takes over
    from prefect.server.api.server import create_app as prefect_app  # noqa: PLC0415 - takes seconds

    application: Application = prefect_app(final=True)
    collect_elsewhere()
    # Requests of the server to itself (automations) go to Prefect's application and bypass the guard.
    pages = Pages(Askers(application), os.environ.get("TOKMILL_STORE"))
    return Guard(pages, os.environ.get(HOSTS, "").split(","))


def collect_elsewhere() -> None:
    """From now on, collect this process's garbage in a thread; what there is by now stays."""
    gc.disable()
    gc.freeze()  # the modules: they are never garbage, and need not be looked through
    threading.Thread(target=_collect_for_ever, name="collecting", daemon=True).start()


def _collect_for_ever() -> None:
    never = threading.Event()
    while not never.wait(_PAUSE_SECONDS):
        due = _oldest_due()
        if due is not None:
            gc.collect(due)


def _oldest_due() -> int | None:
    """Return the oldest generation that Python would collect by now; None if it is none."""
    counts, thresholds = gc.get_count(), gc.get_threshold()
    return max((number for number in range(3) if counts[number] > thresholds[number] > 0), default=None)


class Askers:
    """An ASGI application that adds the labels, and passes all requests on."""

    def __init__(self, application: Application) -> None:
        """Wrap Prefect's application."""
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; one for a flow run with its labels."""
        if not _asks_for_a_run(scope):
            await self._application(scope, receive, send)
            return
        body = await _body(receive)
        if body is None:  # too long, or its sender left; Prefect gets nothing, and refuses that
            body = b""
        labelled = with_labels(body, _headers(scope))
        waiting = [{"type": "http.request", "body": labelled, "more_body": False}]

        async def receiving() -> Message:
            return waiting.pop() if waiting else await receive()

        await self._application(_of_length(scope, len(labelled)), receiving, send)


def with_labels(body: bytes, headers: Mapping[str, str]) -> bytes:
    """Return the body of a request with the labels; unchanged if it is no JSON object, or has them.

    Args:
        body: of the request.
        headers: of the request, by lower-case name.
    """
    try:
        wanted = json.loads(body)
    except (ValueError, RecursionError):  # the server itself refuses it
        return body
    if not isinstance(wanted, dict):
        return body
    given = wanted.get("labels")
    wanted["labels"] = {**(given if isinstance(given, dict) else {}), **_labels(headers)}
    return json.dumps(wanted).encode()


def _labels(headers: Mapping[str, str]) -> dict[str, Any]:
    how = "page" if "sec-fetch-site" in headers else "program"
    user = next((headers[name] for name in _SIGNED_IN if headers.get(name)), None) or _basic_user(headers)
    return {HOW: how} | ({USER: user[:_MOST_CHARS]} if user else {})


def _basic_user(headers: Mapping[str, str]) -> str:
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return ""
    try:
        return base64.b64decode(value, validate=True).decode().partition(":")[0]
    except (binascii.Error, UnicodeDecodeError):
        return ""


def _asks_for_a_run(scope: Scope) -> bool:
    return (
        scope["type"] == "http"
        and scope["method"] == "POST"
        and _ASKS.fullmatch(scope.get("path", "")) is not None
    )


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}


async def _body(receive: Receive) -> bytes | None:
    parts, size = list[bytes](), 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > _MOST_BYTES:
            return None
        if not message.get("more_body", False):
            return b"".join(parts)


def _of_length(scope: Scope, length: int) -> Scope:
    others = [pair for pair in scope["headers"] if pair[0].lower() != b"content-length"]
    return {**scope, "headers": [*others, (b"content-length", str(length).encode())]}


PAGES = "TOKMILL_PAGES"
"""Environment variable of `tokmill up` and its worker: the URL below which reports are."""
PREFIX = "/tokmill/report"
_PATH = re.compile(rf"{PREFIX}/([0-9a-f]{{64}})")
_KEPT = 4
_OK, _NOT_FOUND, _NOT_ALLOWED = 200, 404, 405


class Pages:
    """An ASGI application that answers requests for reports, and passes all others on."""

    def __init__(self, application: Application, store: str | None) -> None:
        """Serve reports of a store beside an application.

        Args:
            application: Prefect's application.
            store: the folder of artifacts; None for that of the working directory.
        """
        self._application = application
        self._store = store
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._writing = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with a report, or pass the request on."""
        if scope["type"] != "http" or not scope["path"].startswith(f"{PREFIX}/"):
            await self._application(scope, receive, send)
        elif scope["method"] not in {"GET", "HEAD"}:
            await _answer(scope, send, _NOT_ALLOWED, b"reports are only read\n", "text/plain")
        else:
            await self._report(scope, send)

    async def _report(self, scope: Scope, send: Send) -> None:
        named = _PATH.fullmatch(scope["path"])
        if named is None:
            wrong = f"{PREFIX}/ is followed by the fingerprint of an audit or a sweep\n".encode()
            await _answer(scope, send, _NOT_FOUND, wrong, "text/plain")
            return
        try:
            page = await self._page(named[1])
        except LookupError as error:
            await _answer(scope, send, _NOT_FOUND, f"{error}\n".encode(), "text/plain")
        else:
            await _answer(scope, send, _OK, page, "text/html")

    async def _page(self, fingerprint: str) -> bytes:
        """Return a report.

        Raises:
            LookupError: `tokmill report` refuses, and says why.
        """
        async with self._writing:  # one process at a time; a second reader finds what the first has asked for
            if fingerprint not in self._kept:
                self._kept[fingerprint] = await _written(fingerprint, self._store)
            self._kept.move_to_end(fingerprint)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
            return self._kept[fingerprint]


async def _written(fingerprint: str, store: str | None) -> bytes:
    with tempfile.TemporaryDirectory(prefix="tokmill-report-") as folder:
        out = Path(folder) / "report"
        where = [] if store is None else ["--store", store]
        command = ["-P", "-m", "tokmill", "report", fingerprint, "--out", str(out), *where]
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
        )
        _, said = await process.communicate()
        if process.returncode != 0:
            raise LookupError(said.decode("utf-8", "replace").strip() or "no reason given")
        (page,) = out.glob("*.html")
        return page.read_bytes()


async def _answer(scope: Scope, send: Send, status: int, body: bytes, media_type: str) -> None:
    headers = [
        (b"content-type", f"{media_type}; charset=utf-8".encode()),
        (b"content-length", str(len(body)).encode()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
