"""A stage: one verb of the DAG, as a plain function with declared parameters.

The model in a few lines. A `Stage` pairs a pydantic parameters model with a plain function

    run(params, *, out, **inputs) -> Outcome

that writes only below the directory `out`. A `Request` asks for one artifact: a stage, its parameters
and its inputs. Inputs are references to artifacts (`ArtifactRef`, handed to the function as the path of
the artifact's directory) or things outside of the store (`External`, handed over as their `value`).
What bears identity is the stage, its version, the parameters and the inputs' content digests; names,
paths and `External.value` do not. `tasks.store` turns a request into a published artifact.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field

Unit = Literal["documents", "tokens", "bytes"]
Scalar: TypeAlias = str | int | float | bool
How: TypeAlias = Literal["made", "cached", "waited"]
"""How a task came by its artifact: made it, found it in the store, or waited until another had made it."""

Amount: TypeAlias = Annotated[int, Field(ge=-(2**63), lt=2**63)]

NO_SOURCE = "*"
"""Stands for a source in accounts of what is no single source's: padding, or a shard that sources share."""


class Params(BaseModel):
    """Base of every stage's parameters: frozen, and unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Account(BaseModel):
    """What became of everything that came in from one source, in one unit.

    `became` maps an end ("kept", "dropped:min_tokens", "quarantined:invalid_utf8", "repeated", "padding")
    to an amount. The values must add up to `num_in`, or the artifact is not published. What a stage adds
    (an end token, padding, a repetition) counts as coming in, under its name in `added`.

    Sources whose text is equal share a shard's artifact, whoever asked for it first. So the accounts of a
    shard are of `NO_SOURCE`; those of each source are in the artifact that puts the shards together.
    """

    model_config = ConfigDict(frozen=True)

    source: str
    unit: Unit
    num_in: Amount
    added: Mapping[str, Amount] = {}
    became: Mapping[str, Amount]

    @property
    def balanced(self) -> bool:
        """Whether everything that came in or was added is accounted for."""
        return self.num_in + sum(self.added.values()) == sum(self.became.values())


@dataclass(frozen=True)
class Outcome:
    """What a stage says of its work, for the record.

    `metrics` are numbers and short texts that follow from the inputs alone: no times, paths or worker
    counts.
    """

    metrics: Mapping[str, Scalar]
    accounts: Sequence[Account] = ()


class ArtifactRef(BaseModel):
    """A small, stable reference to a published artifact; this is what tasks pass to each other."""

    model_config = ConfigDict(frozen=True)

    kind: str
    name: str
    fingerprint: str
    content_digest: str


class External(BaseModel):
    """Something outside of the store: a digest that bears identity, and a value that tells where it is."""

    model_config = ConfigDict(frozen=True)

    digest: str
    value: Any = None


Input: TypeAlias = ArtifactRef | External
Inputs: TypeAlias = Mapping[str, Input | Sequence[Input]]

P = TypeVar("P", bound=Params)


@dataclass(frozen=True)
class Stage(Generic[P]):
    """One verb of the DAG.

    Attributes:
        verb: unique key, e.g. `encode_shard`.
        task: the word shown to people, e.g. `encode` (several verbs may share it).
        kind: the kind of artifact that it publishes, e.g. `encoded_shard`.
        version: raised whenever the same request would give other bytes than before.
        params: the parameters model.
        run: the plain function; `run(params, *, out: Path, **inputs)`.
    """

    verb: str
    task: str
    kind: str
    version: int
    params: type[P]
    run: Callable[..., Outcome]


@dataclass(frozen=True)
class Request:
    """One artifact asked for: a stage, the artifact's name, parameters and inputs."""

    stage: Stage[Any]
    name: str
    params: Params
    inputs: Inputs
