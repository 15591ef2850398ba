"""`tokmill run` and `tokmill plan`: runs a profile, or shows what a run would do."""

import shlex
import time
from collections.abc import Sequence

from tokmill.flows.cli.app import app, command
from tokmill.flows.cli.interruption import keeping
from tokmill.flows.cli.options import (
    JsonOption,
    MemoryOption,
    NoPrefectOption,
    ProfileArgument,
    RefreshOption,
    RehashOption,
    SetOption,
    StoreOption,
    UntilOption,
    VerifyOption,
    WorkersOption,
)
from tokmill.flows.cli.output import messages, notes, print_json


@command(
    app,
    "tokmill run quickstart",
    "tokmill run own.toml --set pack.sequence_length=2048 --workers 8",
    "tokmill run own.toml --until tokenizer",
    "tokmill run own.toml --store /data/store --verify full --json > run.json",
)
def run(
    profile: ProfileArgument,
    overrides: SetOption = None,
    store: StoreOption = None,
    workers: WorkersOption = None,
    memory: MemoryOption = None,
    verify: VerifyOption = None,
    rehash: RehashOption = False,
    until: UntilOption = None,
    refresh: RefreshOption = None,
    no_prefect: NoPrefectOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run a profile, from raw text to packed shards.

    Artifacts that are up to date are reused.
    """
    from tokmill.flows.cli.progress import display
    from tokmill.flows.cli.summaries import print_run, run_document
    from tokmill.flows.library import api
    from tokmill.flows.profile import load_profile
    from tokmill.flows.run.machine import store_url, writable_store

    loaded = load_profile(profile, overrides or [])
    location = store_url(store, loaded.execution)
    opened = writable_store(location)
    began = time.monotonic()
    with display(messages()) as shown:
        keeping(lambda: shown.kept(location))
        result = api.run(
            loaded,
            store=location,
            prefect=not no_prefect,
            workers=workers,
            memory=memory,
            verify=verify,
            rehash=rehash,
            until=until or (),
            refresh=refresh or (),
            reporter=shown,
        )
    seconds = time.monotonic() - began
    if as_json:
        print_json(run_document(loaded.name, opened, result, seconds))
    else:
        print_run(_again(profile, overrides or [], until or []), opened, result, seconds)


def _again(profile: str, overrides: Sequence[str], until: Sequence[str]) -> str:
    """The arguments of `tokmill run` that repeat this run."""
    options = [("--set", override) for override in overrides] + [("--until", kind) for kind in until]
    return shlex.join([profile, *(word for option in options for word in option)])


@command(
    app,
    "tokmill plan quickstart",
    "tokmill plan quickstart --set balance.temperature=3",
    "tokmill plan own.toml --json",
)
def plan(
    profile: ProfileArgument,
    overrides: SetOption = None,
    store: StoreOption = None,
    rehash: RehashOption = False,
    until: UntilOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a run would make, what is cached, and what changed."""
    from tokmill.flows.cli.summaries import plan_document, print_plan
    from tokmill.flows.library import api
    from tokmill.flows.profile import load_profile
    from tokmill.flows.run.machine import Machine, open_store

    loaded = load_profile(profile, overrides or [])
    machine = Machine.of(loaded.execution, store=store, rehash=rehash)
    opened = open_store(machine.store)
    rows = api.plan(loaded, until=until or (), store=machine.store, rehash=machine.rehash, reporter=notes)
    if as_json:
        print_json(plan_document(loaded.name, opened, rows))
    else:
        print_plan(opened, rows)
