"""Which tokenizer of a sweep to take, why, and what would change that.

The knee of a curve is the size farthest below the line from its first to its last point, tokens per byte
over embedding parameters, both scaled to 0 … 1 (Satopää et al. 2011). Of the tokenizers that cost at most
`tolerance` more operations per byte than the cheapest, the fairest is recommended, by the least greatest
premium or else by the best-compressed worst source; of equally fair ones the cheapest. A token costs
2·12·L·d² + 2·L·context·d + 2·vocab_size·d operations (Kaplan et al. 2020, table 1; d = `d_model`, L =
`num_layers`), and d parameters, twice if input and output are not tied.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import Field

from tokmill.tasks.core.markdown import number, percent
from tokmill.tasks.core.stage import Params
from tokmill.tasks.sweep.cell import Cell

_PARAMETERS_A_LAYER = 12  # times d²: four matrices of attention, and two of four times the width


class SweepParams(Params):
    """The model that is trained on the tokens, and how much its cost weighs."""

    d_model: int = Field(default=2048, ge=1, le=1 << 20, description="Width of the model.")
    num_layers: int = Field(default=24, ge=1, le=1 << 16, description="Layers of the model.")
    context: int = Field(default=4096, ge=1, le=1 << 40, description="Tokens in the model's context.")
    tied: bool = Field(
        default=False, description="Whether the output layer has the parameters of the embedding."
    )
    tolerance: float = Field(
        default=0.02,
        ge=0,
        le=10,
        description="How much more than the cheapest tokenizer one may cost for being fairer, as a fraction "
        "of the operations per byte of text.",
    )
    max_unknown_share: float = Field(
        default=0.001,
        ge=0,
        le=1,
        description="Tokenizers with a greater share of unknown tokens are not recommended: what they lose "
        "costs nothing.",
    )

    @property
    def words(self) -> str:
        """The model in words."""
        return (
            f"a model with d_model {self.d_model:,}, {self.num_layers} layers, a context of {self.context:,} "
            f"tokens and {'tied' if self.tied else 'untied'} embeddings"
        )


class Cost(NamedTuple):
    """What a tokenizer costs a model; the last two are None without text."""

    embedding_parameters: int  # of the embedding, and of the output layer if it has its own
    embedding_share: float  # their part of all parameters
    operations_per_token: int  # floating-point operations of a forward pass
    attention_share: float  # the part of them that is attention over the context
    output_share: float  # the part of them that is the output layer
    operations_per_byte: float | None  # of text
    context_bytes: float | None  # how much text the context holds


def cost_of(params: SweepParams, num_ids: int, bytes_per_token: float | None) -> Cost:
    """Return what a vocabulary of `num_ids` tokens costs."""
    body = _PARAMETERS_A_LAYER * params.num_layers * params.d_model**2
    embedding = num_ids * params.d_model * (1 if params.tied else 2)
    attention = 2 * params.num_layers * params.context * params.d_model
    output = 2 * num_ids * params.d_model
    operations = 2 * body + attention + output
    return Cost(
        embedding_parameters=embedding,
        embedding_share=round(embedding / (embedding + body), 6),
        operations_per_token=operations,
        attention_share=round(attention / operations, 6),
        output_share=round(output / operations, 6),
        operations_per_byte=round(operations / bytes_per_token, 1) if bytes_per_token else None,
        context_bytes=round(params.context * bytes_per_token, 1) if bytes_per_token else None,
    )


def operations_text(operations: float) -> str:
    """Return a number of operations for people: `0.715 G`, of a small model `0.459 M`, of a tiny one all."""
    if operations < 1e5:
        return number(operations)
    return f"{operations / 1e9:.3f} G" if operations >= 1e8 else f"{operations / 1e6:.3f} M"


class Recommendation(NamedTuple):
    """The label of one cell, or None if no cell can be recommended; why; and what other settings change."""

    cell: str | None
    reason: str
    changes: Sequence[str] = ()


def knees(params: SweepParams, cells: Sequence[Cell]) -> dict[str, str]:
    """Return by curve the label of the cell at its knee; curves of fewer than three sizes have none."""
    curves: dict[str, list[Cell]] = {}
    for cell in sorted(cells, key=lambda cell: cell.vocab_size):
        if cell.bytes_per_token:
            curves.setdefault(cell.curve, []).append(cell)
    found = {name: _knee(params, curve) for name, curve in curves.items()}
    return {name: knee.label for name, knee in found.items() if knee is not None}


def _knee(params: SweepParams, curve: Sequence[Cell]) -> Cell | None:
    across = _scaled([cost_of(params, cell.num_ids, None).embedding_parameters for cell in curve])
    up = _scaled([1 / cell.bytes_per_token for cell in curve if cell.bytes_per_token])
    below = [1 - x - y for x, y in zip(across, up, strict=True)]
    place = max(range(len(curve)), key=lambda index: below[index])
    return curve[place] if 0 < place < len(curve) - 1 and below[place] > 0 else None


def _scaled(values: Sequence[float]) -> list[float]:
    low, span = min(values), max(values) - min(values)
    return [(value - low) / span if span else 0.0 for value in values]


def recommend(params: SweepParams, cells: Sequence[Cell]) -> Recommendation:
    """Return which cell to take, and what other settings would change."""
    chosen = _choose(params, cells)
    if chosen is None:
        most = f"{params.max_unknown_share:.2%}"
        return Recommendation(None, f"None: there is no text, or each has more than {most} unknown tokens.")
    others = {text: _choose(other, cells) for text, other in _variations(params).items()}
    changes = [f"{text}: {other.label}" for text, other in others.items() if other and other != chosen]
    return Recommendation(chosen.label, _reason(params, cells, chosen), changes)


def _choose(params: SweepParams, cells: Sequence[Cell]) -> Cell | None:
    able = _able(params, cells)
    if not able:
        return None
    least = min(_operations(params, cell) for cell in able)
    near = [cell for cell in able if _operations(params, cell) <= least * (1 + params.tolerance)]
    return min(near, key=lambda cell: (_unfairness(cell), _operations(params, cell), cell.vocab_size))


def _able(params: SweepParams, cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells whose compression can be compared: those that lose next to nothing of the text.

    If none keeps it unchanged, as under a normalizer for all, they are alike in that.
    """
    most = params.max_unknown_share
    known = [cell for cell in cells if cell.bytes_per_token and (cell.unknown_share or 0) <= most]
    return [cell for cell in known if cell.keeps_text] or known


def _operations(params: SweepParams, cell: Cell) -> float:
    """Return operations per byte, not rounded: a tiny model has less than 0.1."""
    cost = cost_of(params, cell.num_ids, cell.bytes_per_token)
    return cost.operations_per_token / cell.bytes_per_token if cell.bytes_per_token else float("inf")


def _unfairness(cell: Cell) -> float:
    if cell.max_premium is not None:
        return cell.max_premium
    return 1 / cell.min_bytes_per_token if cell.min_bytes_per_token else float("inf")


def _reason(params: SweepParams, cells: Sequence[Cell], chosen: Cell) -> str:
    able = _able(params, cells)
    cheapest = min(able, key=lambda cell: (_operations(params, cell), cell.vocab_size))
    operations = _operations(params, chosen)
    more = operations / _operations(params, cheapest) - 1
    about = (
        f"{chosen.bytes_per_token:.3f} bytes per token, {operations_text(operations)} operations per byte "
        f"(d_model {params.d_model:,}, {params.num_layers} layers, context {params.context:,})"
    )
    dearer = f"{percent(more)} more than the cheapest, {cheapest.label}"
    cost = "the cheapest" if chosen == cheapest else dearer
    fair = f"Of those that cost at most {params.tolerance:.0%} more, {_fairest(chosen)}."
    return " ".join(filter(None, [f"{about}: {cost}.", fair, _edge(cells, chosen), _left_out(params, cells)]))


def _edge(cells: Sequence[Cell], chosen: Cell) -> str:
    """Return a warning that sizes beyond those that were tried may be better."""
    sizes = [cell.vocab_size for cell in cells if cell.curve == chosen.curve]
    if len(sizes) < 2 or chosen.vocab_size not in (min(sizes), max(sizes)):
        return ""
    last, others = ("largest", "larger") if chosen.vocab_size == max(sizes) else ("smallest", "smaller")
    return f"It is the {last} size that was tried: {others} ones may be better."


def _left_out(params: SweepParams, cells: Sequence[Cell]) -> str:
    unknown = sum(1 for cell in cells if (cell.unknown_share or 0) > params.max_unknown_share)
    changed = sum(1 for cell in cells if cell.bytes_per_token) - unknown - len(_able(params, cells))
    most = f"{params.max_unknown_share:.2%}"
    reasons = [f"{unknown} with more than {most} unknown tokens"] * bool(unknown)
    reasons += [f"{changed} whose text may come back changed"] * bool(changed)
    return f"Left out: {' and '.join(reasons)}, which lose text." if reasons else ""


def _fairest(chosen: Cell) -> str:
    if chosen.max_premium is not None:
        return f"it has the least greatest premium: {chosen.dearest} with {chosen.max_premium:.2f}"
    least = min(
        (one for one in chosen.sources if one.bytes_per_token is not None),
        key=lambda one: one.bytes_per_token or 0,
    )
    return (
        f"it compresses its least compressed source best: {least.source} with {least.bytes_per_token:.3f} "
        "bytes per token"
    )


def _variations(params: SweepParams) -> Mapping[str, SweepParams]:
    wider = {"d_model": params.d_model * 2, "num_layers": params.num_layers * 2}
    smaller = {"d_model": max(1, params.d_model // 2), "num_layers": max(1, params.num_layers // 2)}
    changed: dict[str, dict[str, Any]] = {
        "if only the cost counted (tolerance 0)": {"tolerance": 0.0},
        "if fairness might cost 5 % (tolerance 0.05)": {"tolerance": 0.05},
        "if fairness might cost 10 % (tolerance 0.1)": {"tolerance": 0.1},
        f"for a model of twice the width and depth (d_model {wider['d_model']:,})": wider,
        f"for a model of half the width and depth (d_model {smaller['d_model']:,})": smaller,
        f"with a context of {params.context * 8:,} tokens": {"context": params.context * 8},
    }
    return {text: params.model_copy(update=update) for text, update in changed.items()}
