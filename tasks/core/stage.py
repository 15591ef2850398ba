"""A stage: one step of the DAG, as a plain function with declared parameters.

A `Stage` pairs a pydantic parameters model with a plain function

    run(params, *, out, **inputs) -> Outcome

that writes only below the directory `out`. A `Request` asks for one artifact: a stage, its parameters and its
inputs. Inputs are references to artifacts (`ArtifactRef`, handed to the function as the path of the
artifact's directory) or things outside of the store (`External`, passed as their `value`). An artifact's
fingerprint covers the stage, its version, the parameters and the inputs' content digests, but not names,
paths or `External.value`. `tasks.store` turns a request into a published artifact.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

Unit = Literal["documents", "tokens", "bytes"]
Scalar: TypeAlias = str | int | float | bool
How: TypeAlias = Literal["made", "cached", "waited"]
"""How a task got its artifact: made it, found it in the store, or waited for another process to make it."""

Amount: TypeAlias = Annotated[int, Field(ge=-(2**63), lt=2**63)]

NO_SOURCE = "*"
"""The source of accounts that belong to no single source: padding, or a shard that sources share."""


class Params(BaseModel):
    """Base of every stage's parameters: frozen, and unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def without_effect(cls, given: Mapping[str, Any]) -> dict[str, str]:
        """Return setting → the reason, as a clause, for settings that have no effect beside those `given`.

        Args:
            given: the settings as written, before validation. The result may name others, too.
        """
        return {}


class Account(BaseModel):
    """What happened to all input from one source, in one unit.

    `became` maps an end ("kept", "dropped:min_tokens", "quarantined:invalid_utf8", "repeated", "padding") to
    an amount. The amounts must add up to the input, or the artifact is not published. The input is `num_in`
    plus the amounts that the stage adds (end tokens, padding, repetitions), which `added` lists by name.

    Sources with equal text share a shard's artifact. So the accounts of a shard have the source `NO_SOURCE`;
    the artifact that combines the shards has one account per source.
    """

    model_config = ConfigDict(frozen=True)

    source: str
    unit: Unit
    num_in: Amount
    added: Mapping[str, Amount] = {}
    became: Mapping[str, Amount]

    @property
    def balanced(self) -> bool:
        """Whether the input and the additions equal the sum of the ends."""
        return self.num_in + sum(self.added.values()) == sum(self.became.values())


@dataclass(frozen=True)
class Outcome:
    """A stage's metrics and accounts, for the record.

    `metrics` are numbers and short texts that depend on the inputs alone: no times, paths or worker
    counts.
    """

    metrics: Mapping[str, Scalar]
    accounts: Sequence[Account] = ()


class ArtifactRef(BaseModel):
    """A small, stable reference to a published artifact; tasks pass these to each other."""

    model_config = ConfigDict(frozen=True)

    kind: str
    name: str
    fingerprint: str
    content_digest: str


class External(BaseModel):
    """An input outside of the store.

    Attributes:
        digest: identifies it; the fingerprint covers it.
        value: locates it; what the run function gets.
        about: what a record keeps to find it again wherever it is by then, as JSON; None if the digest is
            that of a file or folder, and so says enough.
    """

    model_config = ConfigDict(frozen=True)

    digest: str
    value: Any = None
    about: Any = None


Input: TypeAlias = ArtifactRef | External
Inputs: TypeAlias = Mapping[str, Input | Sequence[Input]]

P = TypeVar("P", bound=Params)


def _no_revision(_params: Params) -> int:
    return 0


@dataclass(frozen=True)
class Stage(Generic[P]):
    """One step of the DAG.

    Attributes:
        verb: unique key, e.g. `encode_shard`.
        task: the name shown to users, e.g. `encode` (several verbs may share it).
        kind: the kind of artifact that it publishes, e.g. `encoded_shard`.
        version: raised whenever the same request gives other bytes than before.
        params: the parameters model.
        run: the plain function; `run(params, *, out: Path, **inputs)`.
        revision: what to add to the version for some parameters, where only these give other bytes than
            before.
        memory: the bytes of memory that the run function needs, about, if that can be told beforehand; takes
            the parameters and the paths of those inputs that exist.
    """

    verb: str
    task: str
    kind: str
    version: int
    params: type[P]
    run: Callable[..., Outcome]
    revision: Callable[[P], int] = _no_revision
    memory: Callable[[P, Mapping[str, Any]], int | None] | None = None


@dataclass(frozen=True)
class Request:
    """A request for one artifact: a stage, the artifact's name, parameters and inputs.

    Its fingerprint is computed once, and kept in `memo`; the store computes it.
    """

    stage: Stage[Any]
    name: str
    params: Params
    inputs: Inputs
    memo: dict[str, str] = field(default_factory=dict, init=False, repr=False, compare=False)


class WithOptional(BaseModel):
    """A model whose fields in `optional` are left out of the JSON if they have their default values."""

    optional: ClassVar[frozenset[str]] = frozenset()

    @model_serializer(mode="wrap")
    def _leave_out(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields = type(self).model_fields
        written: dict[str, Any] = handler(self)
        return {
            name: value
            for name, value in written.items()
            if name not in self.optional
            or getattr(self, name) != fields[name].get_default(call_default_factory=True)
        }
