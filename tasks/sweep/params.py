"""The model that a sweep's tokenizers are for, and how one of them is recommended."""

from pydantic import Field

from tokmill.tasks.core.stage import Params


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
