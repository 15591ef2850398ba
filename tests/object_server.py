"""An S3-compatible object store for tests: moto's real server, behind a proxy that makes faults.

Another server may take moto's place: TOKMILL_S3_SERVER is its command, with `{port}` and `{folder}` where it
wants them, and TOKMILL_S3_KEYS what it takes for credentials, `id:secret`.

The server is a process of its own, started once per session, and ends with it. Each test has its own bucket
(fixture `bucket`), which knows only its own requests and faults. Code under test reaches the server through
`environment()`, which the fixture also puts into `os.environ`: nothing in tokmill knows of tests.
"""

import os
import shlex
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest

from tests.faulty_proxy import Fault, FaultyProxy, Kind, Request, matching

# Prints its port, and ends with its standard input: when the tests' process ends, in whatever way. Between
# look and write in moto, two conditional requests may both find no object, which S3 rules out.
_SERVE = """
import logging, sys, threading
from contextlib import nullcontext
from moto.moto_server import threaded_moto_server as moto
class Application(moto.DomainDispatcherApplication):
    conditional = threading.Lock()
    def __call__(self, environ, start_response):
        with self.conditional if "HTTP_IF_NONE_MATCH" in environ else nullcontext():
            return super().__call__(environ, start_response)
moto.DomainDispatcherApplication = Application
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = moto.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""
_KEY, _, _SECRET = os.environ.get("TOKMILL_S3_KEYS", "tests:not-a-secret").partition(":")
_CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": _KEY,
    "AWS_SECRET_ACCESS_KEY": _SECRET,
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}


_PACE = threading.Event()  # never set


@dataclass
class ObjectServer:
    """The running server.

    Attributes:
        proxy: what clients talk to.
        client: a client of boto3 that talks to the server itself, without faults and without a trace.
    """

    proxy: FaultyProxy
    client: Any
    _numbers: Iterator[int] = field(default_factory=count)

    def environment(self) -> dict[str, str]:
        """Return the variables with which s3fs, botocore and everything on top of them finds the server."""
        return {**_CREDENTIALS, "AWS_ENDPOINT_URL": self.proxy.url}

    def make_bucket(self) -> "Bucket":
        """Make an empty bucket."""
        name = f"bucket-{os.getpid()}-{next(self._numbers)}"
        self.client.create_bucket(Bucket=name)
        return Bucket(self, name)


@dataclass(frozen=True)
class Bucket:
    """A bucket: its objects, the faults of requests to it, and the requests so far."""

    server: ObjectServer
    name: str

    @property
    def url(self) -> str:
        """`s3://` and its name."""
        return f"s3://{self.name}"

    def put(self, key: str, content: bytes) -> str:
        """Write an object, behind the proxy's back; returns its ETag without quotes."""
        answer = self.server.client.put_object(Bucket=self.name, Key=key, Body=content)
        return str(answer["ETag"]).strip('"')

    def get(self, key: str) -> bytes:
        """Read an object, behind the proxy's back."""
        content: bytes = self.server.client.get_object(Bucket=self.name, Key=key)["Body"].read()
        return content

    def delete(self, key: str) -> None:
        """Delete an object."""
        self.server.client.delete_object(Bucket=self.name, Key=key)

    def keys(self) -> list[str]:
        """Return the keys of all objects, sorted."""
        pages = self.server.client.get_paginator("list_objects_v2").paginate(Bucket=self.name)
        return sorted(found["Key"] for page in pages for found in page.get("Contents", ()))

    def uploads(self) -> list[str]:
        """Return the keys of uploads in parts that were begun and neither completed nor aborted."""
        found = self.server.client.list_multipart_uploads(Bucket=self.name)
        return sorted(upload["Key"] for upload in found.get("Uploads", ()))

    def fault(
        self,
        kind: Kind,
        *,
        method: str = "*",
        key: str = "*",
        query: str = "*",
        times: int | None = 1,
        status: int = 503,
        num_bytes: int = 0,
        skip: int = 0,
    ) -> Fault:
        """Put a fault in force for the next `times` requests that match (wildcards); see `Fault`."""
        matches = matching(self.name, method, key, query)
        return self.server.proxy.faults.add(Fault(kind, matches, times, status, num_bytes, skip=skip))

    def requests(self, method: str = "*", key: str = "*", query: str = "*") -> list[Request]:
        """Return the matching requests to this bucket so far, in the order in which their answers began."""
        matches = matching(self.name, method, key, query)
        return [request for request in self.server.proxy.faults.requests() if matches(request)]

    def num_sent(self, method: str = "GET", key: str = "*?") -> int:
        """Return how many bytes of objects (or of what matches) the clients were sent."""
        return sum(request.num_sent for request in self.requests(method, key))


@contextmanager
def serving() -> Iterator[ObjectServer]:
    """Run a server in a process of its own, with a proxy in this one."""
    import boto3  # noqa: PLC0415
    from botocore.config import Config  # noqa: PLC0415

    with (
        _another() if "TOKMILL_S3_SERVER" in os.environ else _moto() as port,
        closing(
            boto3.client(
                "s3",
                endpoint_url=f"http://127.0.0.1:{port}",
                aws_access_key_id=_KEY,
                aws_secret_access_key=_SECRET,
                region_name="us-east-1",
                config=Config(retries={"max_attempts": 0}),
            )
        ) as client,
    ):
        proxy = FaultyProxy(("127.0.0.1", port))
        try:
            yield ObjectServer(proxy, client)
        finally:
            proxy.stop()


@contextmanager
def _moto() -> Iterator[int]:
    command = [sys.executable, "-c", _SERVE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()


@contextmanager
def _another() -> Iterator[int]:
    """Run the server that TOKMILL_S3_SERVER names; yields its port when it answers."""
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        words = shlex.split(os.environ["TOKMILL_S3_SERVER"])
        command = [word.format(port=port, folder=folder) for word in words]
        environment = os.environ | {"GATEWAY_PORT": str(port)}
        with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL) as process:
            try:
                wait_until_open(port, process)
                yield port
            finally:
                process.terminate()


def free_port() -> int:
    """Return a port that nobody listens at."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_until_open(port: int, process: "subprocess.Popen[Any]") -> None:
    """Wait until a process takes connections; fail if it ends."""
    while process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            _PACE.wait(0.1)
        else:
            return
    raise RuntimeError(f"{process.args} ended with exit code {process.returncode}")


@pytest.fixture(scope="session")
def object_server() -> Iterator[ObjectServer]:
    """The server of the session; the test skips if it is not installed."""
    pytest.importorskip("moto", reason="moto is not installed: pip install -e '.[test]'")
    pytest.importorskip("s3fs", reason="s3fs is not installed: pip install -e '.[test]'")
    with serving() as server:
        yield server


@pytest.fixture
def bucket(object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """An empty bucket, with the variables that lead to its server in this process's environment."""
    for name, value in object_server.environment().items():
        monkeypatch.setenv(name, value)
    yield object_server.make_bucket()
    object_server.proxy.faults.clear()
