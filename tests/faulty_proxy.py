"""An HTTP proxy on loopback that records requests and makes faults: held, refused, lost and cut ones.

It stands between a client and one server, forwards request targets byte for byte (so that odd keys stay as
they were sent), and keeps connections of clients open. It applies every matching fault that delays a request,
and then the first matching one that spoils it. A fault counts down each time that it is applied.
"""

import http.client
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from http import HTTPStatus
from typing import Literal
from urllib.parse import unquote, urlsplit

PIECE_BYTES = 64 << 10
Kind = Literal["answer", "cut", "cut_upload", "lose", "hold"]
_HOP_BY_HOP = ("connection", "transfer-encoding", "keep-alive", "expect")


@dataclass
class Request:
    """A request, as the proxy has seen it.

    Attributes:
        method: in capitals.
        target: as sent.
        headers: by name in lower case.
        status: status of the answer that the client got; 0 if it got none.
        num_sent: bytes of the answer's body that were sent to the client so far.
    """

    method: str
    target: str
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    status: int = 0
    num_sent: int = 0

    @property
    def bucket(self) -> str:
        """The first part of the path."""
        return self._path.partition("/")[0]

    @property
    def key(self) -> str:
        """The rest of the path; empty for requests about the bucket."""
        return self._path.partition("/")[2]

    @property
    def query(self) -> str:
        """The part after the question mark."""
        return urlsplit(self.target).query

    @property
    def _path(self) -> str:
        return unquote(urlsplit(self.target).path).removeprefix("/")


@dataclass
class Fault:
    """What happens to matching requests.

    Attributes:
        kind: answer: `status` without asking the server. cut: the connection is reset after `num_bytes` of
            the answer's body. cut_upload: the same after `num_bytes` of the request's body, or all of a
            shorter one, and the server gets none of it. lose: the server gets the request, the client no
            answer. hold: waits until `release` is called.
        matches: which requests.
        times: how often; None for always.
        skip: how many matching requests pass before.
        num_applied: how often so far.
        arrived: set once a request was held.
    """

    kind: Kind
    matches: Callable[[Request], bool]
    times: int | None = 1
    status: int = 503
    num_bytes: int = 0
    skip: int = 0
    num_applied: int = 0
    arrived: threading.Event = field(default_factory=threading.Event)
    _released: threading.Event = field(default_factory=threading.Event)

    def release(self) -> None:
        """Let held requests go on, and hold no others."""
        self.times = 0
        self._released.set()

    def wait(self) -> None:
        """Hold the calling request."""
        self.arrived.set()
        self._released.wait()


class Faults:
    """The faults that are in force, and the requests so far. May be used by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: list[Fault] = []
        self._requests: list[Request] = []

    def add(self, fault: Fault) -> Fault:
        """Put a fault in force."""
        with self._lock:
            self._faults.append(fault)
        return fault

    def clear(self) -> None:
        """End all faults, and let held requests go on."""
        with self._lock:
            ended, self._faults = self._faults, []
        for fault in ended:
            fault.release()

    def requests(self) -> list[Request]:
        """Return the requests so far, in the order in which their answers began."""
        with self._lock:
            return list(self._requests)

    def record(self, request: Request) -> None:
        """Note a request, before its client can know how it ended."""
        with self._lock:
            self._requests.append(request)

    def of(self, request: Request) -> tuple[list[Fault], Fault | None]:
        """Return the faults for a request, and count them: those that delay it, and one that spoils it."""
        delays: list[Fault] = []
        with self._lock:
            for fault in self._faults:
                if (fault.times is None or fault.num_applied < fault.times) and fault.matches(request):
                    if fault.skip:
                        fault.skip -= 1
                        continue
                    fault.num_applied += 1
                    if fault.kind != "hold":
                        return delays, fault
                    delays.append(fault)
        return delays, None


def matching(
    bucket: str = "*", method: str = "*", key: str = "*", query: str = "*"
) -> Callable[[Request], bool]:
    """Return whether a request has these parts, which may hold wildcards (`*` crosses slashes)."""

    def matches(request: Request) -> bool:
        parts = (request.bucket, request.method, request.key, request.query)
        return all(map(fnmatchcase, parts, (bucket, method, key, query)))

    return matches


class FaultyProxy(socketserver.ThreadingTCPServer):
    """Forwards requests to a server at `upstream`; `faults` says what happens to them."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, upstream: tuple[str, int]) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.upstream = upstream
        self.faults = Faults()
        threading.Thread(target=self.serve_forever, name="faulty proxy", daemon=True).start()

    @property
    def url(self) -> str:
        """Where clients reach it."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def stop(self) -> None:
        """Stop accepting connections."""
        self.faults.clear()
        self.shutdown()
        self.server_close()


class _CutError(Exception):
    """The client's connection ends here."""


class _Connection(socketserver.StreamRequestHandler):
    """One connection of a client."""

    server: FaultyProxy
    disable_nagle_algorithm = True

    def handle(self) -> None:
        with suppress(OSError, _CutError):
            while (request := self._head()) is not None:
                self._serve(request)

    def _head(self) -> Request | None:
        line = self.rfile.readline().decode("latin-1").split()
        if len(line) != 3:
            return None
        parsed = http.client.parse_headers(self.rfile)
        return Request(line[0], line[1], {name.lower(): value for name, value in parsed.items()})

    def _serve(self, request: Request) -> None:
        delays, fault = self.server.faults.of(request)
        for delay in delays:
            delay.wait()
        if fault is not None and fault.kind == "cut_upload":
            self._expect(request)
            # a client that has sent a shorter body whole would be left to wait for its answer
            length = int(request.headers.get("content-length", fault.num_bytes))
            self.rfile.read(min(fault.num_bytes, length))
            self.server.faults.record(request)
            self._cut()
        body = self._body(request)
        if fault is not None and fault.kind == "answer":
            self._refuse(request, fault.status)
        else:
            self._forward(request, body, fault)

    def _expect(self, request: Request) -> None:
        if "100-continue" in request.headers.get("expect", "").lower():
            self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _body(self, request: Request) -> bytes:
        self._expect(request)
        if "chunked" in request.headers.get("transfer-encoding", "").lower():
            return b"".join(self._chunks())
        length = int(request.headers.get("content-length", 0))
        body = self.rfile.read(length)
        if len(body) < length:  # the client has gone: the server must never see a part of a request
            self.server.faults.record(request)
            self._cut()
        return body

    def _chunks(self) -> Iterator[bytes]:
        while length := int(self.rfile.readline().partition(b";")[0] or b"0", 16):
            yield self.rfile.read(length)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass  # trailers

    def _refuse(self, request: Request, status: int) -> None:
        codes = {403: "AccessDenied", 404: "NoSuchKey", 412: "PreconditionFailed", 500: "InternalError"}
        code = codes.get(status, "SlowDown")
        body = f"<Error><Code>{code}</Code><Message>made by a test</Message></Error>".encode()
        body = b"" if request.method == "HEAD" else body
        head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: application/xml\r\n"
        self.server.faults.record(replace(request, status=status, num_sent=len(body)))
        self.wfile.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    def _forward(self, request: Request, body: bytes, fault: Fault | None) -> None:
        upstream = http.client.HTTPConnection(*self.server.upstream, timeout=120)
        try:
            upstream.putrequest(request.method, request.target, skip_host=True, skip_accept_encoding=True)
            for name, value in request.headers.items():
                if name not in (*_HOP_BY_HOP, "content-length"):
                    upstream.putheader(name, value)
            upstream.putheader("content-length", str(len(body)))
            upstream.endheaders(body)
            answer = upstream.getresponse()
            if fault is not None and fault.kind == "lose":
                answer.read()
                self.server.faults.record(request)
                self._cut()
            self._answer(request, answer, fault)
        finally:
            upstream.close()

    def _answer(self, request: Request, answer: http.client.HTTPResponse, fault: Fault | None) -> None:
        """Send the server's answer on; its length is known to S3's clients in any case."""
        length = answer.getheader("content-length")
        whole = answer.read() if length is None else None
        head = [f"HTTP/1.1 {answer.status} {answer.reason}"]
        names = (*_HOP_BY_HOP, "content-length")
        head += [f"{name}: {value}" for name, value in answer.getheaders() if name.lower() not in names]
        head += [f"Content-Length: {len(whole) if whole is not None else length}"]
        request.status = answer.status
        self.server.faults.record(request)
        self.wfile.write("\r\n".join([*head, "", ""]).encode("latin-1"))
        rest = fault.num_bytes if fault is not None and fault.kind == "cut" else None
        pieces = iter(lambda: answer.read(PIECE_BYTES), b"") if whole is None else iter([whole])
        for piece in pieces:
            sent = piece if rest is None else piece[: rest - request.num_sent]
            request.num_sent += len(sent)
            self.wfile.write(sent)
            if len(sent) < len(piece):
                break
        if rest is not None:
            self._cut()

    def _cut(self) -> None:
        """Close the connection, in the middle of whatever was being sent."""
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        raise _CutError
