"""Reports of audits and sweeps over HTTP: `/tokmill/report/FINGERPRINT`, linked from Prefect's pages.

A report is no part of its artifact, so it is written when somebody opens it, by `tokmill report` in a
process of its own: a vocabulary of 200,000 tokens takes seconds, in which the server answers others. Pages
are kept in memory until others push them out.
"""

import asyncio
import re
import sys
import tempfile
from collections import OrderedDict
from pathlib import Path

from tokmill.flows.server.guard import Application, Receive, Scope, Send

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
