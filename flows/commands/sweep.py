"""`tokmill sweep`: tokenizers of several families, temperatures and sizes, side by side."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from tokmill.flows.cli.app import app, examples
from tokmill.flows.cli.interruption import keeping
from tokmill.flows.cli.options import (
    JsonOption,
    MemoryOption,
    NoPrefectOption,
    ProfileArgument,
    SetOption,
    StoreOption,
    WorkersOption,
)
from tokmill.flows.cli.output import Notes, draw, messages, print_json, results, say, table
from tokmill.flows.errors import UsageError

if TYPE_CHECKING:
    from tokmill.tasks.sweep.stage import SweepSummary

_WIDE = 100
_N = TypeVar("_N", int, float)


@app.command(
    rich_help_panel="Vocabulary",
    epilog=examples(
        "tokmill sweep quickstart --vocab-size 1000,2000,4000",
        "tokmill sweep own.toml --vocab-size 8000,16000,32000 --temperature 1,3.3 --family byte_bpe,unigram",
        "tokmill sweep own.toml --vocab-size 32000,64000 --d-model 4096 --num-layers 32 --json",
    ),
)
def sweep(
    profile: ProfileArgument,
    vocab_size: Annotated[
        str | None,
        typer.Option("--vocab-size", metavar="N,…", help="Sizes to try.", show_default="the profile's"),
    ] = None,
    temperature: Annotated[
        str | None,
        typer.Option(
            "--temperature", metavar="T,…", help="Temperatures of the balance.", show_default="the profile's"
        ),
    ] = None,
    family: Annotated[
        str | None,
        typer.Option("--family", metavar="NAME,…", help="Families.", show_default="the profile's"),
    ] = None,
    d_model: Annotated[int, typer.Option("--d-model", min=1, help="Width of the model.")] = 2048,
    num_layers: Annotated[int, typer.Option("--num-layers", min=1, help="Layers of the model.")] = 24,
    context: Annotated[int, typer.Option("--context", min=1, help="Tokens in the model's context.")] = 4096,
    tied: Annotated[
        bool, typer.Option("--tied", help="The output layer has the parameters of the embedding.")
    ] = False,
    tolerance: Annotated[
        float,
        typer.Option(
            "--tolerance", min=0, help="How much more a fairer tokenizer may cost per byte, as a fraction."
        ),
    ] = 0.02,
    only_plan: Annotated[
        bool, typer.Option("--plan", help="Show what would be made, and make nothing.")
    ] = False,
    overrides: SetOption = None,
    store: StoreOption = None,
    workers: WorkersOption = None,
    memory: MemoryOption = None,
    no_prefect: NoPrefectOption = False,
    as_json: JsonOption = False,
) -> None:
    """Train tokenizers of several families, temperatures and sizes, compare them, and recommend one."""
    from tokmill.flows.run.sweeping import model_of

    grid: dict[str, Any] = {
        "vocab_sizes": _numbers("--vocab-size", vocab_size, int),
        "temperatures": _numbers("--temperature", temperature, float),
        "families": _parts("--family", family),
    }
    model = model_of(d_model=d_model, num_layers=num_layers, context=context, tied=tied, tolerance=tolerance)
    given: dict[str, Any] = {**grid, "model": model, "overrides": overrides or []}
    if only_plan:
        _plan(profile, given, store, as_json)
    else:
        _run(
            profile, given, {"workers": workers, "memory": memory, "prefect": not no_prefect}, store, as_json
        )


def _plan(profile: str, given: dict[str, Any], store: str | None, as_json: bool) -> None:
    from tokmill.flows.cli.summaries import plan_document, print_plan
    from tokmill.flows.profile import load_profile
    from tokmill.flows.run import api
    from tokmill.flows.run.machine import open_store, store_url

    loaded = load_profile(profile, given.pop("overrides"))
    opened = open_store(store_url(store, loaded.execution))
    rows = api.plan_sweep(loaded, **given, store=opened.location, reporter=Notes())
    if as_json:
        print_json(plan_document(loaded.name, opened, rows))
    else:
        print_plan(opened, rows)


def _run(
    profile: str, given: dict[str, Any], settings: dict[str, Any], store: str | None, as_json: bool
) -> None:
    from tokmill.flows.cli.progress import display
    from tokmill.flows.profile import load_profile
    from tokmill.flows.run import api
    from tokmill.flows.run.machine import store_url, writable_store
    from tokmill.tasks.sweep.stage import SweepSummary

    loaded = load_profile(profile, given.pop("overrides"))
    location = store_url(store, loaded.execution)
    opened = writable_store(location)
    with display(messages()) as shown:
        keeping(lambda: shown.kept(location))
        result = api.sweep(loaded, **given, store=location, reporter=shown, **settings)
    ref = result.refs["sweep"]
    summary = SweepSummary.open(opened.path(ref))
    if as_json:
        print_json({"artifact": opened.record(ref).reference, **summary.model_dump(mode="json")})
    else:
        _draw(summary, opened.record(ref).reference, f"{result.num_made} of {len(result.rows)} tasks made")


def _draw(summary: "SweepSummary", reference: str, made: str) -> None:
    from tokmill.tasks.sweep.stage import LOSSY, SHOWN, as_table

    narrow = {name: head for name, head in SHOWN.items() if not name.startswith("embedding")}
    heads, rows = as_table(summary, SHOWN if results().width >= _WIDE else narrow)
    draw(table(heads, rows, right=heads[1:-1]))
    if any(row["lossy"] for row in summary.cells):
        say(f"\n{LOSSY}")
    if summary.text == "training":
        say("\nmeasured on the text that was trained on: a profile with [holdout] measures text that was not")
    say(f"\nrecommended: {summary.recommended or '–'}\n{summary.reason}")
    for change in summary.changes:
        say(f"  {change}")
    say(f"\n{made}: {reference}; `tokmill report {reference} --out FOLDER` draws its curves")


def _parts(option: str, given: str | None) -> Sequence[str]:
    """Return what stands between commas; nothing if the option is not given."""
    if given is None:
        return []
    parts = [part.strip() for part in given.split(",")]
    if not all(parts):
        raise UsageError(
            f"{option} {given!r}: nothing stands before or after a comma; write a,b or leave it out"
        )
    return parts


def _numbers(option: str, given: str | None, kind: type[_N]) -> list[_N]:
    try:
        return [kind(part.replace("_", "")) for part in _parts(option, given)]
    except ValueError as error:
        raise UsageError(f"{option} {given}: write numbers with commas between, e.g. 8000,16000") from error
