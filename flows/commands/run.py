"""`tokmill run`, `plan` and `vocab sweep`: run a profile, show what that would do, or try many tokenizers."""

import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from typer import Option

from tokmill.flows.cli.app import Answer, app, command, in_vocab
from tokmill.flows.cli.interruption import keeping
from tokmill.flows.cli.options import (
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
from tokmill.flows.cli.output import Part, messages, notes, results, table
from tokmill.flows.errors import UsageError

if TYPE_CHECKING:
    from tokmill.flows.run.events import Listener
    from tokmill.tasks.sweep.stage import SweepSummary

_WIDE = 100
_N = TypeVar("_N", int, float)


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
) -> Answer:
    """Run a profile, from raw text to packed shards.

    Artifacts that are up to date are reused.
    """
    from tokmill.flows.cli.summaries import run_document, run_parts
    from tokmill.flows.library import api
    from tokmill.flows.profile import load_profile
    from tokmill.flows.run.machine import store_url, writable_store

    loaded = load_profile(profile, overrides or [])
    location = store_url(store, loaded.execution)
    opened = writable_store(location)
    began = time.monotonic()
    with watched(location) as shown:
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
    again = _again(profile, overrides or [], until or [])
    return Answer(
        lambda: run_document(loaded.name, opened, result, seconds), run_parts(again, opened, result, seconds)
    )


@contextmanager
def watched(store: str) -> "Iterator[Listener]":
    """Show a run's progress, and if it is interrupted what of it is kept in the store."""
    from tokmill.flows.cli.progress import display

    with display(messages()) as shown:
        keeping(lambda: shown.kept(store))
        yield shown


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
) -> Answer:
    """Show what a run would make, what is cached, and what changed."""
    from tokmill.flows.cli.summaries import planned
    from tokmill.flows.library import api
    from tokmill.flows.profile import load_profile
    from tokmill.flows.run.machine import Machine, open_store

    loaded = load_profile(profile, overrides or [])
    machine = Machine.of(loaded.execution, store=store, rehash=rehash)
    opened = open_store(machine.store)
    rows = api.plan(loaded, until=until or (), store=machine.store, rehash=machine.rehash, reporter=notes)
    return planned(loaded.name, opened, rows)


@command(
    in_vocab,
    "tokmill vocab sweep quickstart --vocab-size 1000,2000,4000",
    "tokmill vocab sweep own.toml --vocab-size 8000,16000 --temperature 1,3.3 --family byte_bpe,unigram",
    "tokmill vocab sweep own.toml --vocab-size 32000,64000 --d-model 4096 --num-layers 32 --json",
)
def sweep(
    profile: ProfileArgument,
    vocab_size: str | None = Option(None, metavar="N,…", help="Sizes to try.", show_default="the profile's"),
    temperature: str | None = Option(None, metavar="T,…", help="Temperatures.", show_default="the profile's"),
    family: str | None = Option(None, metavar="NAME,…", help="Families.", show_default="the profile's"),
    d_model: int = Option(2048, min=1, help="Width of the model."),
    num_layers: int = Option(24, min=1, help="Layers of the model."),
    context: int = Option(4096, min=1, help="Tokens in the model's context."),
    tied: bool = Option(False, "--tied", help="The output layer has the parameters of the embedding."),
    tolerance: float = Option(0.02, min=0, help="The share that a fairer tokenizer may cost more."),
    only_plan: bool = Option(False, "--plan", help="Show what would be made, and make nothing."),
    overrides: SetOption = None,
    store: StoreOption = None,
    workers: WorkersOption = None,
    memory: MemoryOption = None,
    no_prefect: NoPrefectOption = False,
) -> Answer:
    """Train tokenizers over a grid, compare them, and recommend one.

    The grid has families, temperatures and vocabulary sizes.
    """
    from tokmill.flows.cli.summaries import planned
    from tokmill.flows.library import api
    from tokmill.flows.profile import load_profile
    from tokmill.flows.run.machine import open_store, store_url, writable_store
    from tokmill.flows.run.sweeping import model_of
    from tokmill.tasks.sweep.stage import SweepSummary

    request: dict[str, Any] = {
        "vocab_sizes": _numbers("--vocab-size", vocab_size, int),
        "temperatures": _numbers("--temperature", temperature, float),
        "families": _words("--family", family),
        "model": model_of(
            d_model=d_model, num_layers=num_layers, context=context, tied=tied, tolerance=tolerance
        ),
    }
    loaded = load_profile(profile, overrides or [])
    location = store_url(store, loaded.execution)
    if only_plan:
        opened = open_store(location)
        rows = api.plan_sweep(loaded, **request, store=opened.location, reporter=notes)
        return planned(loaded.name, opened, rows)
    opened = writable_store(location)
    settings: dict[str, Any] = {"workers": workers, "memory": memory, "prefect": not no_prefect}
    with watched(location) as shown:
        result = api.sweep(loaded, **request, **settings, store=location, reporter=shown)
    ref = result.refs["sweep"]
    summary, reference = SweepSummary.open(opened.path(ref)), opened.record(ref).reference
    return Answer(
        {"artifact": reference, **summary.model_dump(mode="json")},
        _shown(summary, reference, f"{result.num_made} of {len(result.rows)} tasks made"),
    )


def _shown(summary: "SweepSummary", reference: str, made: str) -> Iterator[Part]:
    from tokmill.tasks.sweep.stage import LOSSY, SHOWN, as_table

    narrow = {name: head for name, head in SHOWN.items() if not name.startswith("embedding")}
    heads, rows = as_table(summary, SHOWN if results().width >= _WIDE else narrow)
    yield table(heads, rows, right=heads[1:-1])
    if any(row["lossy"] for row in summary.cells):
        yield f"\n{LOSSY}"
    if summary.text == "training":
        yield "\nmeasured on the text that was trained on; a profile with [holdout] measures other text"
    yield f"\nrecommended: {summary.recommended or '–'}\n{summary.reason}"
    yield from (f"  {change}" for change in summary.changes)
    yield f"\n{made}: {reference}; `tokmill report {reference} --out FOLDER` draws its curves"


def _words(option: str, text: str | None) -> Sequence[str]:
    """Return the words between commas; none without the option."""
    parts = [] if text is None else [part.strip() for part in text.split(",")]
    if not all(parts):
        raise UsageError(f"{option} {text!r}: a word beside a comma is missing; write a,b or leave it out")
    return parts


def _numbers(option: str, text: str | None, kind: type[_N]) -> list[_N]:
    try:
        return [kind(part.replace("_", "")) for part in _words(option, text)]
    except ValueError as error:
        raise UsageError(f"{option} {text}: write numbers with commas between, e.g. 8000,16000") from error
