"""Google's and Azure's object storage for tests: their emulators, which start without a container.

TOKMILL_GS_SERVER is the program fake-gcs-server, TOKMILL_AZ_SERVER Azurite's `azurite-blob`
(CONTRIBUTING.md); tests of a service whose program is not named skip. Each is started once per session, and
each test has a bucket of its own.
"""

import os
import subprocess
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest

from tests.object_server import free_port, wait_until_open

# The account that Azurite's documentation gives to everybody.
_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@dataclass(frozen=True)
class OtherService:
    """A running service.

    Attributes:
        scheme: of its URLs.
        environment: the variables that lead to it.
    """

    scheme: str
    environment: Mapping[str, str]


@contextmanager
def _google() -> Iterator[OtherService]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    options = ["-scheme", "http", "-host", "127.0.0.1", "-port", f"{port}", "-external-url", url]
    with _running(
        [_program("TOKMILL_GS_SERVER"), *options, "-backend", "memory", "-log-level", "error"], port
    ):
        yield OtherService("gs", {"STORAGE_EMULATOR_HOST": url, "FSSPEC_GCS_TOKEN": "anon"})


@contextmanager
def _azure() -> Iterator[OtherService]:
    port = free_port()
    options = ["--silent", "--inMemoryPersistence", "--skipApiVersionCheck", "--blobPort", f"{port}"]
    named = f"DefaultEndpointsProtocol=http;AccountName={_ACCOUNT};AccountKey={_KEY};"
    endpoint = f"BlobEndpoint=http://127.0.0.1:{port}/{_ACCOUNT};"
    with _running([_program("TOKMILL_AZ_SERVER"), *options], port):
        yield OtherService("az", {"AZURE_STORAGE_CONNECTION_STRING": named + endpoint})


_SERVICES = {"gs": _google, "az": _azure}
_LIBRARIES = {"gs": "gcsfs", "az": "adlfs"}


def _program(variable: str) -> str:
    if variable not in os.environ:
        pytest.skip(f"{variable} does not name an emulator (CONTRIBUTING.md)")
    return os.environ[variable]


@contextmanager
def _running(command: list[str], port: int) -> Iterator[None]:
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            wait_until_open(port, process)
            yield
        finally:
            process.terminate()


@pytest.fixture(scope="session")
def other_services() -> Iterator[Callable[[str], OtherService]]:
    """Return what starts the service of a scheme, once."""
    with ExitStack() as running:
        started: dict[str, OtherService] = {}

        def of(scheme: str) -> OtherService:
            pytest.importorskip(_LIBRARIES[scheme])
            if scheme not in started:
                started[scheme] = running.enter_context(_SERVICES[scheme]())
            return started[scheme]

        yield of


@pytest.fixture
def other_bucket(
    other_services: Callable[[str], OtherService], monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], str]:
    """Return what makes a bucket of a scheme's service; what leads there is in the environment then."""

    def make(scheme: str) -> str:
        import fsspec  # noqa: PLC0415 - its libraries read the environment

        for name, value in other_services(scheme).environment.items():
            monkeypatch.setenv(name, value)
        url = f"{scheme}://tests-{uuid.uuid4().hex}"
        filesystem, path = fsspec.core.url_to_fs(url)
        filesystem.mkdir(path)
        return url

    return make
