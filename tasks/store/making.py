"""Makes one artifact: runs the stage in a temporary directory, checks its outcome, publishes its files."""

import time
from collections.abc import Mapping
from pathlib import Path

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.faults import out_of_memory
from tokmill.tasks.core.stage import Outcome, Request
from tokmill.tasks.store.canonical import plain
from tokmill.tasks.store.digest import content_digest
from tokmill.tasks.store.durable import lack_of
from tokmill.tasks.store.extra_tables import check_extra_tables
from tokmill.tasks.store.fingerprints import fingerprint, fingerprint_payload
from tokmill.tasks.store.labels import Names
from tokmill.tasks.store.layout import Layout
from tokmill.tasks.store.provenance import Provenance, utc_now
from tokmill.tasks.store.publish import check_accounts, commit, digest_files, sweep, workspace
from tokmill.tasks.store.record import Record, Timings, input_entries
from tokmill.tasks.store.storage import STORAGE


def make(layout: Layout, request: Request, inputs: Mapping[str, object], provenance: Provenance) -> Record:
    """Run the stage of `request` and publish its files.

    Args:
        layout: the store.
        request: the request; the caller holds its fingerprint's lock.
        inputs: what the run function receives, by role.
        provenance: by whom and for which run.

    Raises:
        AccountError: the stage's accounts do not add up.
        MachineError: memory ran out.
        StoreError: the disk is full, a file cannot be written, or the stage broke the rules of the store.
        Exception: any other error of the stage.

    After any error, nothing is published and the temporary directory has been removed.
    """
    where = f"{request.stage.kind}/{request.name}"
    sweep(layout)
    try:
        with workspace(layout) as out:
            record = _run(layout, request, inputs, provenance, out)
            commit(layout, out, record)
    except OSError as error:
        raise StoreError(_failure(where, layout.root, error)) from error
    except MemoryError as error:
        raise out_of_memory(f"{where} was not published", error) from error
    except Exception as error:
        if lack_of(error):
            raise StoreError(_failure(where, layout.root, error)) from error
        raise
    return record


def _run(
    layout: Layout, request: Request, inputs: Mapping[str, object], provenance: Provenance, out: Path
) -> Record:
    started, clock = utc_now(), time.perf_counter()
    outcome = request.stage.run(request.params, out=out, **inputs)
    seconds = round(time.perf_counter() - clock, 6)
    _check_outcome(request, outcome)
    check_extra_tables(out)
    files = digest_files(out)
    payload = fingerprint_payload(request)
    owner = fingerprint(payload)
    return Record(
        kind=request.stage.kind,
        name=request.name,
        label=Names(layout).reserve(request.stage.kind, request.name, owner),
        fingerprint=owner,
        payload=payload,
        content_digest=content_digest(files),
        files=files,
        inputs=input_entries(request.inputs),
        params=request.params.model_dump(mode="json"),
        metrics=dict(outcome.metrics),
        accounts=list(outcome.accounts),
        timings=Timings(started=started, ended=utc_now(), seconds=seconds),
        provenance=provenance,
    )


def _check_outcome(request: Request, outcome: object) -> None:
    """Refuse metrics that a record cannot hold, and accounts that do not add up."""
    where = f"{request.stage.kind}/{request.name}"
    if not isinstance(outcome, Outcome):
        found = type(outcome).__qualname__
        raise StoreError(f"{where}: the stage returned a {found}; it must return an Outcome")
    for name, value in outcome.metrics.items():
        if not isinstance(value, str | int | float):
            found = type(value).__qualname__
            raise StoreError(f"{where}: metric {name}={value!r} is a {found}; use text, int, float or bool")
    plain(outcome.metrics, f"{where}: metrics")
    check_accounts(where, outcome.accounts)


def _failure(where: str, root: Path, error: BaseException) -> str:
    lack = lack_of(error)
    if lack is None:
        return f"{where} was not published: {error}"
    room = f"{root} has {STORAGE.free_bytes(root)} bytes free"
    return f"{where} was not published: {lack.what} ({error}); {room}; {lack.advice}"
