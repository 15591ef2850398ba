"""A profile: all settings of one run of the DAG, in one frozen, validated value.

Each stage has a section, whose model is the stage's parameters. `[experiment]`, `[execution]`, `[schedule]`,
`[openlineage]` and `[mlflow]` change no fingerprint. `[train]` and `[tokenizer]` exclude each other.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PrivateAttr, field_validator, model_validator

from tokmill.flows.profile.fields import Change
from tokmill.flows.profile.sections import Experiment, MLflow, OpenLineage, Schedule, Section, StageName
from tokmill.tasks.audit.params import AuditParams, check_language
from tokmill.tasks.balance.stage import BalanceParams
from tokmill.tasks.card.stage import CardParams, TokenizerCardParams
from tokmill.tasks.encode.stage import EncodeParams
from tokmill.tasks.formats.text.sources import MAX_NAME_CHARS, SourceSpec
from tokmill.tasks.holdout.stage import HoldoutParams
from tokmill.tasks.ingest.stage import IngestParams
from tokmill.tasks.mixing.consume import ConsumeParams
from tokmill.tasks.mixing.stage import MixParams
from tokmill.tasks.packing.params import PackParams
from tokmill.tasks.score.stage import TrigramParams
from tokmill.tasks.train.adopt import AdoptParams
from tokmill.tasks.train.stage import TrainParams

NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"
# Names are parts of file names, which file systems limit to 255 bytes.
Name = Annotated[str, Field(pattern=NAME, max_length=MAX_NAME_CHARS)]
SIZE = r"^([0-9]+(?:\.[0-9]+)?) *([KMGT]i?B)$"
Size = Annotated[str, Field(pattern=SIZE)]

DURATION = r"^[0-9]+(?:\.[0-9]+)?[smhd]$"
Duration = Annotated[str, Field(pattern=DURATION)]


NOT_RECORDED = ("openlineage", "mlflow")
"""Sections that say whom a run tells of itself."""


class Execution(Section):
    """The machine settings: where artifacts are kept, and limits. They never change a fingerprint."""

    store: str | None = Field(
        None,
        description="Folder or URL of the store; --store and TOKMILL_STORE take precedence.",
        examples=["store"],
    )
    credentials: str | None = Field(
        None,
        pattern=r"^block:[a-z0-9][a-z0-9-]*$",
        description="Where credentials for object storage are kept if not in the environment: `block:NAME` "
        "for a secret block of the Prefect server. Never a credential itself.",
        examples=["block:team-bucket"],
    )
    workers: int | None = Field(
        None, ge=1, le=1 << 12, description="Number of parallel tasks; one per core if not set."
    )
    memory: Size | None = Field(
        None,
        description="Memory for counts before they are written to disk; a quarter of the RAM if not set. "
        "--memory and TOKMILL_MEMORY take precedence.",
        examples=["4GB"],
    )
    runner: Literal["threads", "processes", "dask", "ray"] | None = Field(
        None,
        description="Executor of the tasks: threads or processes of this machine, or a cluster of Dask or "
        "Ray (extras `tokmill[dask]`, `tokmill[ray]`). If not set: threads, and processes for the shards of "
        "256 MiB of text or more if more than four cores are at work.",
    )
    address: str | None = Field(
        None,
        description="Address of the scheduler of Dask, or of Ray's cluster; if not set, one on this machine "
        "is started for the run.",
        examples=["tcp://10.0.0.7:8786", "ray://10.0.0.7:10001"],
    )
    retries: int = Field(
        2,
        ge=0,
        le=100,
        description="Further attempts of a task after a fault that may pass, such as one of a network share; "
        "other faults are not tried again.",
    )
    retry_pause: float = Field(
        5.0,
        ge=0,
        le=3600,
        allow_inf_nan=False,
        description="Seconds before the first of them; each further one waits twice as long.",
    )
    timeout: Duration | None = Field(
        None,
        description="How long a task may run before it is stopped and the run fails; for ever if not set.",
        examples=["2h"],
    )
    timeouts: dict[StageName, Duration] = Field(
        default_factory=dict,
        description="The same for single stages, by the name in their tasks' titles.",
        examples=[{"train": "12h"}],
    )
    verify: Literal["sizes", "full"] = Field(
        "sizes",
        description="Check of an artifact before it is reused: its files' sizes, or their digests as well.",
    )
    rehash: bool = Field(
        False,
        description="Read every source file again instead of trusting its size and time, or its ETag.",
    )


class ExistingTokenizer(AdoptParams):
    """An existing tokenizer, instead of a trained one."""

    use: str = Field(
        description="An artifact (`tokenizer/quickstart@v1`) or a file or folder in a known format, or its "
        "URL.",
        examples=["tokenizer/quickstart@latest"],
    )

    def params(self) -> AdoptParams:
        """The parameters of the stage: all but the tokenizer's location."""
        return AdoptParams.model_validate(self.model_dump(exclude={"use"}))


class Auditing(AuditParams):
    """What the audit reads and the limits of its gate, and the files and tokenizer that it names."""

    parallel: dict[str, str] = Field(
        default_factory=dict,
        description="Text files by language, or their URLs, whose line N is the same sentence in each: for "
        "the premium of each language.",
        examples=[{"eng": "parallel/eng.txt", "hin": "parallel/hin.txt"}],
    )
    compare_with: ExistingTokenizer | None = Field(
        default=None, description="Another tokenizer, which encodes the same text for comparison."
    )

    @field_validator("parallel")
    @classmethod
    def _check_languages(cls, parallel: dict[str, str]) -> dict[str, str]:
        return {check_language(name): file for name, file in parallel.items()}

    def params(self) -> AuditParams:
        """The parameters of the stage: all but the files and the tokenizer."""
        return AuditParams.model_validate(self.model_dump(exclude={"parallel", "compare_with"}))


class Replanning(ConsumeParams):
    """A mixture that continues where a training run stopped reading an earlier one."""

    packed: str = Field(
        description="The packed sequences that the run has read in order, as an artifact (`packed/own@v1`).",
        examples=["packed/own@v1"],
    )

    def params(self) -> ConsumeParams:
        """The parameters of the stage: all but the name of the packed sequences."""
        return ConsumeParams.model_validate(self.model_dump(exclude={"packed"}))


class Profile(Section):
    """One run's sources and parameters."""

    name: Name = Field(
        description="Name of the artifacts; the file's stem if not given.", examples=["quickstart"]
    )
    description: str = Field("", description="Purpose of the profile, in one line.")
    sources: dict[Name, SourceSpec] = Field(
        min_length=1, description="The sources of text, one table per source."
    )
    ingest: IngestParams = IngestParams()
    holdout: HoldoutParams | None = None
    balance: BalanceParams = BalanceParams()
    train: TrainParams | None = None
    tokenizer: ExistingTokenizer | None = None
    encode: EncodeParams = EncodeParams()
    audit: Auditing = Auditing()
    score: TrigramParams = TrigramParams()
    mix: MixParams = MixParams()
    replan: Replanning | None = None
    pack: PackParams = PackParams()
    tokenizer_card: TokenizerCardParams = TokenizerCardParams()
    card: CardParams = CardParams()
    experiment: Experiment = Experiment()
    schedule: Schedule | None = None
    execution: Execution = Execution()
    openlineage: OpenLineage = OpenLineage()
    mlflow: MLflow = MLflow()

    _notes: tuple[str, ...] = PrivateAttr(())
    _changed: tuple[Change, ...] = PrivateAttr(())

    @model_validator(mode="before")
    @classmethod
    def _bound_only(cls, given: Any) -> Any:
        """Only bound documents if a tokenizer is trained without special tokens, unless a token is named."""
        tables = given if isinstance(given, Mapping) else {}
        train, encode = tables.get("train"), tables.get("encode", {})
        if not isinstance(train, Mapping) or not isinstance(encode, Mapping) or "tokenizer" in tables:
            return given
        if train.get("special_tokens") in ([], ()) and not train.get("special_sets"):
            return {**tables, "encode": {"end_of_document": None, **encode}}
        return given

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on how the profile was loaded: replaced sources, and overrides without effect."""
        return self._notes

    @property
    def changed(self) -> tuple[Change, ...]:
        """What the overrides of this run changed of the profile's own values."""
        return self._changed

    def with_notes(self, notes: Iterable[str], changed: Iterable[Change] = ()) -> Self:
        """Return the same profile with notes on how it was loaded, and what overrides changed."""
        copy = self.model_copy()
        copy._notes, copy._changed = tuple(notes), tuple(changed)
        return copy

    def training(self) -> TrainParams | None:
        """The parameters of the run's tokenizer training; None if it uses an existing tokenizer."""
        return None if self.tokenizer is not None else self.train or TrainParams()

    def ingest_params(self) -> IngestParams:
        """The parameters of `ingest`: the profile's own, and the read options of each source."""
        options = {name: spec.read_options() for name, spec in self.sources.items()}
        return self.ingest.model_copy(update={"sources": options})

    def mix_params(self) -> MixParams:
        """The parameters of `mix`: the profile's own, with `pack.sequence_length` if steps need it."""
        counts_steps = self.mix.schedule_unit == "steps" and self.mix.sequence_length is None
        length = {"sequence_length": self.pack.sequence_length} if counts_steps else {}
        return self.mix.model_copy(update=length)

    def resolved(self) -> dict[str, Any]:
        """Return the whole profile as JSON values, defaults included."""
        return self.model_dump(mode="json", exclude_none=True)

    def for_record(self) -> dict[str, Any]:
        """Return the profile as JSON values for the run's record: all but whom the run tells of itself."""
        return self.model_dump(mode="json", exclude_none=True, exclude=set(NOT_RECORDED))
