"""The Prefect server: that of PREFECT_API_URL, else the one that serves the store, if there is one."""

from tokmill.flows.doctor.report import Part
from tokmill.flows.errors import UsageError
from tokmill.flows.run.machine import open_store
from tokmill.flows.server.findings import look_at_faults
from tokmill.flows.server.settings import may_have_a_server, prepare_terminal_run
from tokmill.flows.server.store_lock import last_served
from tokmill.tasks.store import Store


def look_at_server(location: str, *, free: bool = False) -> Part:
    """Return what is wrong with the server's loops, workers and doors; nothing is asked where there is none.

    Args:
        location: the store that a server may serve.
        free: whether to end dead runs at the server, and to remove dead workers there.
    """
    found = Part("server")
    store = _store(location)
    serves = None if store is None else last_served(store.root / ".up")
    if serves is None and not may_have_a_server():
        found.facts["api"] = "none is configured; each run brings its own, and `tokmill up` starts one"
        found.figures["api"] = None
        return found
    prepare_terminal_run()
    from prefect.settings import PREFECT_API_URL  # noqa: PLC0415 - takes a second

    from tokmill.flows.server.doctor import look_at_dead, look_at_doors, look_at_runs  # noqa: PLC0415 - likewise

    api = (PREFECT_API_URL.value() or (f"{serves.url}/api" if serves else "")).rstrip("/") or None
    found.figures["api"] = api
    found.facts["api"] = api or "none is configured"
    if api is None:
        return found
    own = look_at_faults(store.root / ".up") if store and serves and api == f"{serves.url}/api" else []
    dead, freed = look_at_dead(api, store, free=free)
    found.figures["freed"] = freed
    found.facts |= {"freed": ", ".join(freed)} if freed else {}
    found.findings = [*own, *dead, *look_at_runs(api), *look_at_doors(api)]
    return found


def _store(location: str) -> Store | None:
    try:
        store = open_store(location)
    except UsageError:  # the store's own part says that
        return None
    return store if store.root.is_dir() else None
