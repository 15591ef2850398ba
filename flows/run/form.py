"""The typed fields of the form in the Prefect UI, which override values of the profile for one run.

A field is empty by default, which keeps the profile's value. Parameters without a field are given in `more`,
in the notation of the command line: `section.key=value`.
"""

import json
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from tokmill.tasks.formats.packed.figures import Strategy
from tokmill.tasks.sampling import Method
from tokmill.tokenizer.pipeline.families import FamilyName


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class BalanceOverrides(_Section):
    """The share of each source in the tokenizer's training text."""

    model_config = ConfigDict(title="balance")

    method: Method | None = Field(
        None, description="Rule for each source's share of the tokenizer's training text."
    )
    temperature: Annotated[float, Field(gt=0)] | None = Field(
        None, description="T in p ∝ n^(1/T): 1 keeps natural shares, larger values equalize them."
    )


class TrainOverrides(_Section):
    """The tokenizer's training."""

    model_config = ConfigDict(title="train")

    vocab_size: Annotated[int, Field(ge=2)] | None = Field(
        None,
        description="Tokens in the vocabulary, special and reserved ones included; byte_bpe needs 257.",
    )
    family: FamilyName | None = Field(
        None, description="Family: byte-level BPE, or tokens that are whole words or characters."
    )
    split_pattern: str | None = Field(
        None, description="gpt2, cl100k, o200k, llama3, qwen2, cs336, or a regular expression."
    )


class MixOverrides(_Section):
    """The shares of the sources in the training data, and the order of the documents."""

    model_config = ConfigDict(title="mix")

    method: Method | None = Field(None, description="Rule for each source's share of the training tokens.")
    seed: int | None = Field(None, description="Seed of the order of documents within each source.")
    total_tokens: Annotated[int, Field(ge=1)] | None = Field(
        None,
        description="Tokens in the mixture; empty for as many as the shares and max_repetition allow.",
    )


class PackOverrides(_Section):
    """The packed sequences."""

    model_config = ConfigDict(title="pack")

    sequence_length: Annotated[int, Field(ge=8)] | None = Field(None, description="Tokens per sequence.")
    strategy: Strategy | None = Field(
        None,
        description="concat cuts documents where sequences end; best_fit keeps them whole and pads a little.",
    )


class Overrides(_Section):
    """Values that replace the profile's own for one run."""

    balance: BalanceOverrides = BalanceOverrides()
    train: TrainOverrides = TrainOverrides()
    mix: MixOverrides = MixOverrides()
    pack: PackOverrides = PackOverrides()
    more: list[str] = Field(
        default_factory=list,
        description="Any other parameter, as section.key=value, e.g. encode.min_tokens=16",
    )

    def assignments(self) -> list[str]:
        """Return the fields that are set, as `section.key=value` with TOML values; `more` comes last."""
        given = self.model_dump(exclude={"more"}, exclude_none=True)
        typed = [
            f"{section}.{key}={_toml(value)}"
            for section, keys in given.items()
            for key, value in keys.items()
        ]
        return [*typed, *self.more]


def _toml(value: Any) -> str:
    # JSON's numbers and basic strings are TOML's too.
    return json.dumps(value, ensure_ascii=False)
