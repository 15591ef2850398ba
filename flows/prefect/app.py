"""Prefect's application with access control, for `tokmill up` and the embedded server.

Any page in a browser can send requests to 127.0.0.1; `Guard` refuses them. Behind it are reports of audits
and sweeps (`/tokmill/report/FINGERPRINT`), and labels that say who asked for a run.
"""

import asyncio
import base64
import binascii
import gc
import gzip
import json
import os
import re
import sqlite3
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tokmill.flows.prefect.settings import HOSTS, HOW, REPORTS, USER, origins

TEMPLATE: Final = Path(__file__).with_name("database.sql.gz")
_MISDIRECTED, _FORBIDDEN = 421, 403
_NEW_RUN = re.compile(r"(/api)?/(deployments/[0-9a-fA-F-]{36}/create_flow_run|flow_runs/?)")
_SIGNED_IN: Final = ("x-forwarded-user", "x-remote-user", "x-auth-request-user", "remote-user")
_MOST_CHARS: Final = 100
_PAUSE_SECONDS: Final = 0.5


def create_app() -> ASGIApp:
    """Return the application, which answers only requests to the names in the variable `HOSTS`."""
    gc.disable()  # an eighth of the start; `collect_elsewhere` takes over
    from prefect.server.api.server import create_app as prefect_app  # noqa: PLC0415 - takes seconds
    from prefect.settings import PREFECT_API_DATABASE_CONNECTION_URL  # noqa: PLC0415 - likewise

    make_database(PREFECT_API_DATABASE_CONNECTION_URL.value())
    application = prefect_app(final=True)
    collect_elsewhere()
    reports = Reports(os.environ.get("TOKMILL_STORE"))
    # Requests of the server to itself (automations) go to Prefect's application and bypass the guard.
    routes = [Route(f"{REPORTS}/{{fingerprint}}", reports.answer), Mount("/", labelled(application))]
    whole = Starlette(routes=routes, lifespan=lambda _: application.router.lifespan_context(application))
    return Guard(whole, os.environ.get(HOSTS, "").split(","))


def make_database(url: str) -> None:
    """Make a new home's database, by SQLAlchemy's URL: 110 migrations take longer than a short run.

    The template is what those of the oldest supported Prefect make; the server's own continue it, and say
    why if it cannot be written.
    """
    kind, _, name = url.partition(":///")
    file = Path(name)
    if not kind.startswith("sqlite") or not file.is_absolute() or "?" in name or file.exists():
        return
    with suppress(OSError, sqlite3.Error), tempfile.TemporaryDirectory(dir=file.parent) as folder:
        whole = Path(folder) / file.name
        with closing(sqlite3.connect(whole)) as database:
            database.executescript(gzip.decompress(TEMPLATE.read_bytes()).decode())
            database.execute("PRAGMA journal_mode = WAL")  # as Prefect leaves it
        os.link(whole, file)  # unless another server was quicker


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


class Guard:
    """Refuses requests of foreign pages, and passes all others on.

    - `Host` must be one of the server's names. If the DNS name of a page is changed to 127.0.0.1 (DNS
      rebinding), the browser treats page and server as one origin, but `Host` still has the page's name.
    - `Origin`, which browsers send with POST requests and WebSockets, must be one of the server's own.
    - A request that the browser marks as from another site (`Sec-Fetch-Site`) must be a link that a person
      followed. Programs send neither of these headers.

    Headers of the answers forbid other pages to show the server's page in a frame (clickjacking), and the
    page to load scripts from, or send data to, other servers.
    """

    def __init__(self, application: ASGIApp, hosts: Iterable[str]) -> None:
        """Guard an application; `hosts` as in `Host`, with the port unless it is the scheme's default."""
        self._application = application
        self._hosts = frozenset(host.lower() for host in hosts)
        self._origins = frozenset(origins(self._hosts))
        self._headers = dict(_protecting_headers(self._hosts))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on."""
        refused = None if scope["type"] == "lifespan" else self._refusal(scope, Headers(scope=scope))
        if refused is None:
            await self._application(scope, receive, self._protecting(send))
        elif scope["type"] == "websocket":  # before it opens, which the client sees as 403
            await send({"type": "websocket.close", "code": 1008})
        else:
            await _said(*refused)(scope, receive, send)

    def _refusal(self, scope: Scope, headers: Headers) -> tuple[int, str] | None:
        """Return the status and the reason if a request is refused."""
        hosts, pages, sites = map(headers.getlist, ("host", "origin", "sec-fetch-site"))
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            names, asked = ", ".join(sorted(self._hosts)), ", ".join(hosts) or "no name"
            return (
                _MISDIRECTED,
                f"this server answers to {names}, not to {asked}; see `tokmill up --allow-host`",
            )
        if any(page.lower() not in self._origins for page in pages):
            return _FORBIDDEN, "this server refuses requests from other pages"
        foreign = not pages and not set(sites) <= {"same-origin", "none"}
        if foreign and not _is_followed_link(scope, headers):
            return _FORBIDDEN, "this server refuses to be shown in other pages"
        return None

    def _protecting(self, send: Send) -> Send:
        """Return a `send` that adds our headers to every answer."""

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self._headers)
            await send(message)

        return sending


def _is_followed_link(scope: Scope, headers: Headers) -> bool:
    """Whether a request loads a whole page, as a link in an e-mail does, and not a part of another page."""
    navigates = [headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")] == ["navigate", "document"]
    return scope["type"] == "http" and scope["method"] == "GET" and navigates


def _protecting_headers(hosts: Iterable[str]) -> Iterator[tuple[str, str]]:
    own = sorted(host for host in hosts if not host.startswith("["))  # a policy has no notation for IPv6
    reached = " ".join(f"{scheme}://{host}" for host in own for scheme in ("http", "https", "ws", "wss"))
    yield (
        "content-security-policy",
        f"default-src 'self'; connect-src 'self' {reached}; "
        "script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; worker-src 'self' blob:; "
        "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
        "object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'",
    )
    yield "x-frame-options", "DENY"
    yield "x-content-type-options", "nosniff"
    yield "referrer-policy", "same-origin"
    yield "cross-origin-opener-policy", "same-origin"
    yield "cross-origin-resource-policy", "same-origin"


def _said(status: int, text: str) -> Response:
    return PlainTextResponse(f"{text}\n".encode("utf-8", "replace"), status)


def labelled(application: ASGIApp) -> ASGIApp:
    """Return an application that adds labels to requests for a flow run, and passes all requests on."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST" and _NEW_RUN.fullmatch(scope["path"]):
            request, rest = Request(scope, receive), receive
            body = with_labels(await request.body(), request.headers)
            MutableHeaders(scope=scope)["content-length"] = str(len(body))
            bodies = [body]

            async def received() -> Message:
                return {"type": "http.request", "body": bodies.pop()} if bodies else await rest()

            receive = received
        await application(scope, receive, send)

    return answer


def with_labels(body: bytes, headers: Mapping[str, str]) -> bytes:
    """Return a request's body with the labels; unchanged if it is not a JSON object."""
    try:
        wanted: Any = json.loads(body)
    except (ValueError, RecursionError):  # the server itself refuses it
        return body
    if not isinstance(wanted, dict):
        return body
    known = wanted.get("labels")
    user = next((headers[name] for name in _SIGNED_IN if headers.get(name)), None) or _basic_user(headers)
    who = {HOW: "page" if "sec-fetch-site" in headers else "program"}
    who |= {USER: user[:_MOST_CHARS]} if user else {}
    return json.dumps({**wanted, "labels": {**(known if isinstance(known, dict) else {}), **who}}).encode()


def _basic_user(headers: Mapping[str, str]) -> str:
    scheme, _, value = headers.get("authorization", "").partition(" ")
    try:
        name = base64.b64decode(value, validate=True).decode().partition(":")[0]
    except (binascii.Error, ValueError):
        return ""
    return name if scheme.lower() == "basic" else ""


class Reports:
    """The reports of a store, or of the working directory's.

    A report is no part of its artifact. It is written when somebody opens it first, by `tokmill report` in a
    process of its own: a vocabulary of 200,000 tokens takes seconds, in which the server answers others.
    """

    def __init__(self, store: str | None) -> None:
        self._where = [] if store is None else ["--store", store]
        self._folder = tempfile.TemporaryDirectory(prefix="tokmill-reports-")
        self._writing = asyncio.Lock()  # held by one process; a second reader finds what the first asked for

    async def answer(self, request: Request) -> Response:
        """Answer with a report, or say why there is none."""
        fingerprint = str(request.path_params["fingerprint"])
        if not re.fullmatch("[0-9a-f]{64}", fingerprint):
            return _said(404, f"{REPORTS}/ is followed by the fingerprint of an audit or a sweep")
        out = Path(self._folder.name) / fingerprint
        async with self._writing:
            if not any(out.glob("*.html")):
                command = ["-P", "-m", "tokmill", "report", fingerprint, "--out", str(out), *self._where]
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    *command,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=asyncio.subprocess.PIPE,
                )
                _, said = await process.communicate()
                if process.returncode:
                    return _said(404, said.decode("utf-8", "replace").strip() or "no reason given")
        return FileResponse(next(out.glob("*.html")), media_type="text/html; charset=utf-8")
