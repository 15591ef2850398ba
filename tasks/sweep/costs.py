"""What a tokenizer costs a model: parameters of embeddings, and operations per byte of text.

For a decoder with d = `d_model` and L = `num_layers`, as in table 1 of Kaplan et al. 2020, "Scaling laws for
neural language models": 12·L·d² parameters without embeddings, and for each token of a forward pass

    2 · 12·L·d²         multiplications and additions with those parameters
    2 · L · context · d  attention over the whole context
    2 · vocab_size · d   the output layer

A token of the embedding has d parameters, and as many in the output layer unless the two are tied.
Operations per byte are those per token, divided by bytes per token: a larger vocabulary makes fewer tokens,
each of which costs more.
"""

from dataclasses import dataclass

from tokmill.tasks.core.markdown import number
from tokmill.tasks.sweep.params import SweepParams

_PARAMETERS_A_LAYER = 12  # times d²: four matrices of attention, and two of four times the width


@dataclass(frozen=True)
class Cost:
    """What a tokenizer costs a model.

    Attributes:
        embedding_parameters: of the embedding, and of the output layer if it has its own.
        embedding_share: their part of all parameters.
        operations_per_token: floating-point operations of a forward pass.
        attention_share: the part of them that is attention over the context.
        output_share: the part of them that is the output layer.
        operations_per_byte: of text; None without text.
        context_bytes: how much text the context holds; None without text.
    """

    embedding_parameters: int
    embedding_share: float
    operations_per_token: int
    attention_share: float
    output_share: float
    operations_per_byte: float | None
    context_bytes: float | None


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
