"""A real HTTP server on the loopback address that keeps what is posted to it, and answers as it is told."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Receiver:
    """What was received.

    Attributes:
        url: where messages go; it has a token in it, as those of chats do.
        answers: status of each answer in turn, the last one for all others; 0 never answers.
    """

    url: str
    answers: list[int] = field(default_factory=lambda: [200])
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    closing: threading.Event = field(default_factory=threading.Event)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The bodies as JSON."""
        return [json.loads(body) for body in self.bodies]


TOKEN = "T0P-SECRET-TOKEN"


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Start a server on a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.headers.append(dict(self.headers))
            received.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            status = received.answers[min(len(received.bodies), len(received.answers)) - 1]
            if status == 0:
                received.closing.wait()
                return
            self.send_response(status)
            if status in (301, 302):
                self.send_header("Location", received.url)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    received = Receiver(f"http://127.0.0.1:{server.server_port}/hooks/{TOKEN}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield received
    finally:
        received.closing.set()
        server.shutdown()
        server.server_close()
