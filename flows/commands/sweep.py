"""`tokmill vocab sweep`: tokenizers of several families, temperatures and sizes, side by side."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from typer import Option

from tokmill.flows.cli.app import command, in_vocab
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
from tokmill.flows.cli.output import draw, messages, notes, print_json, results, say, table
from tokmill.flows.errors import UsageError

if TYPE_CHECKING:
    from tokmill.flows.profile import Profile
    from tokmill.tasks.sweep.stage import SweepSummary

_WIDE = 100
_N = TypeVar("_N", int, float)


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
    as_json: JsonOption = False,
) -> None:
    """Train tokenizers over a grid, compare them, and recommend one.

    The grid has families, temperatures and vocabulary sizes.
    """
    from tokmill.flows.profile import load_profile
    from tokmill.flows.run.machine import store_url
    from tokmill.flows.run.sweeping import model_of

    grid: dict[str, Any] = {
        "vocab_sizes": _numbers("--vocab-size", vocab_size, int),
        "temperatures": _numbers("--temperature", temperature, float),
        "families": _parts("--family", family),
    }
    model = model_of(d_model=d_model, num_layers=num_layers, context=context, tied=tied, tolerance=tolerance)
    loaded = load_profile(profile, overrides or [])
    request: dict[str, Any] = {**grid, "model": model, "store": store_url(store, loaded.execution)}
    if only_plan:
        _plan(loaded, request, as_json=as_json)
    else:
        settings = {"workers": workers, "memory": memory, "prefect": not no_prefect}
        _run(loaded, {**request, **settings}, as_json=as_json)


def _plan(loaded: "Profile", request: dict[str, Any], *, as_json: bool) -> None:
    from tokmill.flows.cli.summaries import plan_document, print_plan
    from tokmill.flows.library import api
    from tokmill.flows.run.machine import open_store

    opened = open_store(request["store"])
    rows = api.plan_sweep(loaded, **{**request, "store": opened.location}, reporter=notes)
    if as_json:
        print_json(plan_document(loaded.name, opened, rows))
    else:
        print_plan(opened, rows)


def _run(loaded: "Profile", request: dict[str, Any], *, as_json: bool) -> None:
    from tokmill.flows.cli.progress import display
    from tokmill.flows.library import api
    from tokmill.flows.run.machine import writable_store
    from tokmill.tasks.sweep.stage import SweepSummary

    opened = writable_store(request["store"])
    with display(messages()) as shown:
        keeping(lambda: shown.kept(request["store"]))
        result = api.sweep(loaded, **request, reporter=shown)
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


def _parts(option: str, text: str | None) -> Sequence[str]:
    """Return the words between commas; none without the option."""
    parts = [] if text is None else [part.strip() for part in text.split(",")]
    if not all(parts):
        raise UsageError(f"{option} {text!r}: a word beside a comma is missing; write a,b or leave it out")
    return parts


def _numbers(option: str, text: str | None, kind: type[_N]) -> list[_N]:
    try:
        return [kind(part.replace("_", "")) for part in _parts(option, text)]
    except ValueError as error:
        raise UsageError(f"{option} {text}: write numbers with commas between, e.g. 8000,16000") from error
