"""The Prefect server that this process talks to: the configured one, or an embedded one."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from httpx import HTTPStatusError, codes
from prefect.client.base import ServerType, determine_server_type
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.context import SyncClientContext
from prefect.exceptions import ObjectNotFound
from prefect.settings import (
    PREFECT_API_AUTH_STRING,
    PREFECT_API_URL,
    PREFECT_CLIENT_SERVER_VERSION_CHECK_ENABLED,
    PREFECT_FLOWS_HEARTBEAT_FREQUENCY,
    PREFECT_HOME,
    PREFECT_SERVER_API_AUTH_STRING,
    PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS,
    get_current_settings,
    temporary_settings,
)

from tokmill.flows.errors import ServeError
from tokmill.flows.prefect.server import EmbeddedServer

_SAME_VERSION: Final = {PREFECT_CLIENT_SERVER_VERSION_CHECK_ENABLED: False}
"""For a server whose version is known to fit: Prefect's other clients would ask for it again."""


@contextmanager
def prefect_server(
    note: Callable[[str], None], embedded: EmbeddedServer | None = None
) -> Iterator[SyncPrefectClient]:
    """Provide a server in this block, the configured one or an embedded one; yield a client of it.

    Args:
        note: called if the embedded server has to be started again.
        embedded: one that was started already, in case that none is configured.

    Raises:
        ServeError: the configured server does not answer; none is configured and an embedded one is not
            allowed; the embedded one does not start.
    """
    kind = determine_server_type()
    if kind is not ServerType.EPHEMERAL and embedded is not None:
        embedded.stop(patience=0)
    if kind is ServerType.UNCONFIGURED:
        raise ServeError(
            "run: Prefect has no server: PREFECT_API_URL is not set and the embedded one is switched off; "
            "start one with `tokmill up` and set PREFECT_API_URL, or set "
            "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE=true"
        )
    if kind is not ServerType.EPHEMERAL:
        with _configured("run") as client:
            yield client
        return
    settings = get_current_settings().to_environment_variables(exclude_unset=True)
    server = embedded or EmbeddedServer(settings)
    server.wait(PREFECT_HOME.value(), PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS.value(), note)
    own = {
        PREFECT_API_URL: server.url,
        PREFECT_API_AUTH_STRING: PREFECT_SERVER_API_AUTH_STRING.value(),
        PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None,  # the end of a run would wait for its thread
    }
    with temporary_settings({**own, **_SAME_VERSION}), SyncClientContext.get_or_create() as context:
        yield context.client


def require_configured(command: str) -> str:
    """Return the URL of the configured server, which answers.

    Raises:
        ServeError: none is configured, or it does not answer.
    """
    if determine_server_type() in {ServerType.UNCONFIGURED, ServerType.EPHEMERAL}:
        raise ServeError(
            f"{command}: no Prefect server is configured; set PREFECT_API_URL to the team's, e.g. "
            "http://prefect.example.org:4200/api, or use `tokmill up` for one on this machine"
        )
    with _configured(command):
        return str(PREFECT_API_URL.value())


def require_pool(name: str) -> None:
    """Refuse a work pool that the configured server does not have.

    Raises:
        ServeError: it has none of this name.
    """
    with get_client(sync_client=True) as client:
        try:
            client.read_work_pool(name)
        except ObjectNotFound:
            raise ServeError(
                f"work: the server has no work pool {name!r}; register this folder with `tokmill server "
                "deploy` and the same --store, or name an existing pool with --pool"
            ) from None


def no_answer(api: str, problem: Exception) -> tuple[str, str]:
    """Return why a server does not answer as it should, and the fix."""
    code = problem.response.status_code if isinstance(problem, HTTPStatusError) else None
    if code in {codes.UNAUTHORIZED, codes.FORBIDDEN}:
        fix = "check PREFECT_API_AUTH_STRING, which must be the server's PREFECT_SERVER_API_AUTH_STRING"
        return f"not allowed: the Prefect server at {api} refuses these credentials", fix
    if code == codes.NOT_FOUND:
        return f"what answers at {api} is not Prefect's API", "correct PREFECT_API_URL; it ends with /api"
    fix = "start it, for example with `tokmill up`, or unset PREFECT_API_URL to use the embedded one"
    return f"no Prefect server answers at {api} ({problem})", fix


@contextmanager
def _configured(command: str) -> Iterator[SyncPrefectClient]:
    """Open the client of this block, which Prefect's engine uses too: each one takes 20 ms to open."""
    with ExitStack() as opened:
        try:
            client = opened.enter_context(SyncClientContext.get_or_create()).client
            problem = client.api_healthcheck()
        except Exception as error:  # it asks for the server's version first
            problem = error.__cause__ if isinstance(error.__cause__, Exception) else error
        if problem is not None:
            what, fix = no_answer(str(PREFECT_API_URL.value()), problem)
            raise ServeError(f"{command}: {what}; {fix}") from problem
        opened.enter_context(temporary_settings(_SAME_VERSION))
        yield client
