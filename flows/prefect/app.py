"""Prefect's application with access control, for `tokmill up` and the embedded server.

Started by `uvicorn --factory tokmill.flows.prefect.app:create_app`; configured by the environment variable
`HOSTS`. Around Prefect's application are the guard (`flows.prefect.guard`), reports of audits and sweeps
(`/tokmill/report/FINGERPRINT`, linked from Prefect's pages), and labels that say who asked for a run.
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

from tokmill.flows.prefect.guard import Application, Guard, Message, Receive, Scope, Send, answer, origins

HOSTS = "TOKMILL_SERVER_HOSTS"  # names of the server with ports, separated by commas
PAGES = "TOKMILL_PAGES"
"""Environment variable of `tokmill up` and its worker: the URL below which reports are."""
PREFIX: Final = "/tokmill/report"
HOW: Final = "tokmill.started_by"
USER: Final = "tokmill.user"
_REPORT = re.compile(rf"{PREFIX}/([0-9a-f]{{64}})")
_KEPT: Final = 4
_NEW_RUN = re.compile(r"(/api)?/(deployments/[0-9a-fA-F-]{36}/create_flow_run|flow_runs/?)")
_SIGNED_IN: Final = ("x-forwarded-user", "x-remote-user", "x-auth-request-user", "remote-user")
_MOST_CHARS: Final = 100
_PAUSE_SECONDS: Final = 0.5


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
    reports = Reports(Labels(application), os.environ.get("TOKMILL_STORE"))
    return Guard(reports, os.environ.get(HOSTS, "").split(","))


def collect_elsewhere() -> None:
    """From now on, collect this process's garbage in a thread; what there is by now stays.

    A cursor of SQLite may only be freed once its connection is free, for which the event loop must not wait.
    """
    gc.disable()
    gc.freeze()  # the modules: they are never garbage, and need not be looked through
    threading.Thread(target=_collect_for_ever, name="collecting", daemon=True).start()


def _collect_for_ever() -> None:
    never = threading.Event()
    while not never.wait(_PAUSE_SECONDS):
        counts, thresholds = gc.get_count(), gc.get_threshold()
        due = [number for number in range(3) if counts[number] > thresholds[number] > 0]
        if due:
            gc.collect(max(due))


class Labels:
    """An ASGI application that adds labels to requests for a flow run, and passes all requests on."""

    def __init__(self, application: Application) -> None:
        """Wrap Prefect's application."""
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; one for a flow run with its labels."""
        asks = scope["type"] == "http" and scope["method"] == "POST" and _NEW_RUN.fullmatch(scope["path"])
        if not asks:
            await self._application(scope, receive, send)
            return
        from starlette.requests import Request  # noqa: PLC0415 - comes with Prefect, which takes seconds

        request = Request(scope, receive)
        body = with_labels(await request.body(), request.headers)
        others = [pair for pair in scope["headers"] if pair[0].lower() != b"content-length"]
        sized = {**scope, "headers": [*others, (b"content-length", str(len(body)).encode())]}
        waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receiving() -> Message:
            return waiting.pop() if waiting else await receive()

        await self._application(sized, receiving, send)


def with_labels(body: bytes, headers: Mapping[str, str]) -> bytes:
    """Return a request's body with the labels; unchanged if it is no JSON object. Headers are lower-case."""
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


class Reports:
    """An ASGI application that answers requests for reports, and passes all others on.

    A report is no part of its artifact, so it is written when somebody opens it, by `tokmill report` in a
    process of its own: a vocabulary of 200,000 tokens takes seconds, in which the server answers others.
    Reports are kept in memory until others push them out.
    """

    def __init__(self, application: Application, store: str | None) -> None:
        """Serve reports of a store beside an application; without a store, of the working directory's."""
        self._application = application
        self._store = store
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._writing = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with a report, or pass the request on."""
        if scope["type"] != "http" or not scope["path"].startswith(f"{PREFIX}/"):
            await self._application(scope, receive, send)
            return
        named = _REPORT.fullmatch(scope["path"])
        if scope["method"] not in {"GET", "HEAD"}:
            await answer(scope, send, 405, "reports are only read")
        elif named is None:
            await answer(scope, send, 404, f"{PREFIX}/ is followed by the fingerprint of an audit or a sweep")
        else:
            try:
                page = await self._page(named[1])
            except LookupError as error:
                await answer(scope, send, 404, str(error))
            else:
                await answer(scope, send, 200, page, "text/html")

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
