"""Parameters of mixing."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from tokmill.tasks.core.stage import Params
from tokmill.tasks.formats.encoded import COLUMN, COMPONENTS
from tokmill.tasks.mixing.curves import Kind
from tokmill.tasks.sampling import Repetition, SamplingParams, Weight, check_proportions, decimal

Curve: TypeAlias = Literal["linear", "cosine"]
Rank: TypeAlias = Annotated[float, Field(allow_inf_nan=False)]
Amount: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]

MEASURES = ("length", *COMPONENTS)


class SchedulePoint(Params):
    """Weights of the sources from one point of the run on."""

    start: Amount = Field(description="Point of the run from which the weights hold, in schedule_unit.")
    weights: dict[str, Weight] = Field(
        default_factory=dict, description="Raw weight of each source; only their ratios matter."
    )
    proportions: dict[str, Weight] = Field(
        default_factory=dict, description="Instead of weights: shares of the tokens, which sum to 1."
    )

    @model_validator(mode="before")
    @classmethod
    def _from_pair(cls, given: object) -> object:
        """Also accept `[start, weights]`."""
        if isinstance(given, Sequence) and not isinstance(given, str) and len(given) == 2:
            return {"start": given[0], "weights": given[1]}
        return given

    @model_validator(mode="after")
    def _check(self) -> Self:
        if bool(self.weights) == bool(self.proportions):
            raise ValueError(
                f"schedule: the point at {self.start:g} needs weights or proportions, one of the two; "
                "write e.g. [0, {english = 0.7, code = 0.3}]"
            )
        if self.weights and not any(self.weights.values()):
            raise ValueError(
                f"schedule: the point at {self.start:g} has no positive weight; give one source at least"
            )
        if self.proportions:
            check_proportions(f"schedule: the point at {self.start:g}: proportions", self.proportions)
        return self

    @property
    def given(self) -> Mapping[str, float]:
        """The weights or proportions, whichever is given."""
        return self.weights or self.proportions


class RampParams(Params):
    """A change of one source's weight by a factor between two points of the run."""

    start: Amount = Field(
        default=0.0, description="Point of the run at which the change begins, in schedule_unit."
    )
    stop: Amount = Field(description="Point of the run at which it ends.")
    factor: Weight = Field(
        default=0.0,
        description="Factor of the source's weight before a warm-up (0 leaves it out) or after an annealing.",
    )
    change: Curve = Field(default="linear", description="How the factor changes.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.stop < self.start:
            raise ValueError(
                f"stop={self.stop:g} must be at least start={self.start:g}; swap them, or make them "
                "equal for a jump"
            )
        return self


class CurriculumParams(Params):
    """Easy documents before hard ones, within each source."""

    difficulty: dict[str, Rank] = Field(
        description=(
            "Measures of difficulty, with the weight of each one's rank: 'length' (tokens), 'noise', "
            "'perplexity', or 'column:NAME', a number in the source's files. Larger is harder; a negative "
            "weight reverses that. A single measure may be given by its name alone."
        ),
        examples=["length"],
    )
    order: Literal["competence", "easy_to_hard"] = Field(
        default="competence",
        description=(
            "'competence': at any point of the run only the easiest part of each source is eligible, and "
            "documents are drawn from it at random. 'easy_to_hard': from easiest to hardest, each time "
            "through a source."
        ),
    )
    competence: Kind = Field(
        default="sqrt",
        description=(
            "The eligible part at progress t, with c = start: 'linear' c + (1 - c) t, 'sqrt' √(c² + (1 - c²) "
            "t), 'exp' c + (1 - c) (1 - e^(-3t)), which leaves the hardest 5 % × (1 - c) out, or 'step', "
            "stairs of equal height and width."
        ),
    )
    start: float = Field(
        default=0.1,
        ge=0,
        le=1,
        description="Fraction of each source that is eligible at the beginning.",
    )
    until: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="Fraction of the run, in (0, 1], after which the eligible part stops growing.",
    )
    stairs: int = Field(
        default=10,
        ge=2,
        le=1 << 16,
        description="For 'step': number of stairs, including the first and last.",
    )
    sources: tuple[str, ...] = Field(
        default=(), description="The sources with a curriculum; all of them if none is named."
    )

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, given: object) -> object:
        """Also accept `difficulty = "length"` and `["length", "noise"]`; drop unused settings."""
        if not isinstance(given, Mapping):
            return given
        named = given.get("difficulty")
        if isinstance(named, str):
            named = {named: 1.0}
        elif isinstance(named, Sequence):
            named = dict.fromkeys(map(str, named), 1.0)
        unread = cls.without_effect(given)
        kept = {name: value for name, value in given.items() if name not in unread}
        return kept if named is None else kept | {"difficulty": named}

    @classmethod
    def without_effect(cls, given: Mapping[str, Any]) -> dict[str, str]:
        """Return the settings of other orders and of other competence functions."""
        if given.get("order") == "easy_to_hard":
            return dict.fromkeys(("competence", "start", "until", "stairs"), "the order is 'easy_to_hard'")
        return {} if given.get("competence") == "step" else {"stairs": "competence is not 'step'"}

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.difficulty:
            raise ValueError('curriculum: difficulty names no measure; use e.g. difficulty = "length"')
        for name, weight in self.difficulty.items():
            if name not in MEASURES and not (name.startswith(COLUMN) and len(name) > len(COLUMN)):
                raise ValueError(
                    f"curriculum: difficulty '{name}' must be one of {', '.join(MEASURES)} or {COLUMN}NAME"
                )
            if not weight:
                raise ValueError(f"curriculum: difficulty.{name}=0 must not be 0; leave it out")
        return self

    def has(self, source: str) -> bool:
        """Whether a source has a curriculum."""
        return not self.sources or source in self.sources

    @property
    def measures(self) -> tuple[str, ...]:
        """The measures that need scores, in order: all but the length."""
        return tuple(sorted(name for name in self.difficulty if name != "length"))


class MixParams(SamplingParams):
    """The shares of the sources in the training data, counted in tokens."""

    max_repetition: Repetition | dict[str, Repetition] = Field(
        default=1.0,
        description=(
            "The most times that a source may be drawn, at least 1: one number for all, or a table by "
            "source (1 for sources that it does not name). 1 draws no document twice; up to about 4 is "
            "usual. With 'unimax' this is the limit up to which small sources are repeated."
        ),
        examples=[4.0],
    )
    min_epochs: Amount | dict[str, Amount] = Field(
        default=0.0,
        description=(
            "The fewest times that a source must be drawn: one number for all sources with a weight, or a "
            "table by source (0 for sources that it does not name). A floor that the shares do not meet is "
            "refused."
        ),
        examples=[1.0],
    )
    total_tokens: int | None = Field(
        default=None,
        ge=1,
        description=(
            "Tokens of the mixture. Empty: as many as the shares and the curriculum allow under "
            "max_repetition, so that the first source to run out sets the size; with 'unimax', as many as "
            "the sources have."
        ),
        examples=[1_000_000_000],
    )
    schedule: tuple[SchedulePoint, ...] = Field(
        default=(),
        description=(
            "Weights that change over the run, instead of method, temperature and weights: "
            "[[start, {source = weight, …}], …], the first start 0. A table instead of a pair may have "
            "proportions instead of weights."
        ),
    )
    schedule_unit: Literal["fraction", "steps", "tokens"] = Field(
        default="fraction",
        description=(
            "Unit of the starts and stops of schedule, warmup and annealing: a 'fraction' of the run, "
            "'tokens', or 'steps' of sequence_length × global_batch_size tokens."
        ),
    )
    change: Literal["hold", Curve] = Field(
        default="hold",
        description=(
            "How shares change from one point of the schedule to the next: 'hold' until there, then jump; "
            "'linear', a straight line; 'cosine', half a wave, slow at both ends."
        ),
    )
    warmup: dict[str, RampParams] = Field(
        default_factory=dict,
        description=(
            "Sources whose weight grows to its full size between start and stop: {code = {stop = 0.1}}. The "
            "other sources divide the rest."
        ),
    )
    annealing: dict[str, RampParams] = Field(
        default_factory=dict,
        description=(
            "Sources whose weight changes to factor times its size between start and stop, and stays there: "
            "{papers = {start = 0.9, stop = 1, factor = 5}} for quality data late."
        ),
    )
    curriculum: CurriculumParams | None = Field(
        default=None, description="Easy documents before hard ones; empty: every source is shuffled."
    )
    sequence_length: int | None = Field(
        default=None,
        ge=8,
        lt=1 << 31,
        description="Tokens per sequence, for steps. Empty: pack.sequence_length.",
    )
    global_batch_size: int | None = Field(
        default=None,
        ge=1,
        lt=1 << 31,
        description="Sequences per step, over all ranks; required if schedule_unit is 'steps'.",
        examples=[1024],
    )
    long_documents: Literal["whole", "split"] = Field(
        default="whole",
        description=(
            "'whole' gives whole documents: a source stops at the document that comes nearest to its quota. "
            "'split' cuts each source's last document at its quota, so that every share, floor and "
            "total is met exactly; the rest of that document is not drawn."
        ),
    )
    tolerance: Amount = Field(
        default=0.01,
        description=(
            "Allowed difference between given and requested tokens of a source, of all and of min_epochs, "
            "as a fraction of the request. One token is always allowed."
        ),
    )
    on_miss: Literal["warn", "fail"] = Field(
        default="warn",
        description=(
            "What to do with a mixture that misses its request by more than tolerance: 'warn' publishes it "
            "with a warning in run, card and record, 'fail' stops the run."
        ),
    )
    seed: int = Field(
        default=0,
        ge=0,
        lt=1 << 63,
        description="Seed of the order of the documents within each source. Any whole number from 0.",
    )

    @model_validator(mode="before")
    @classmethod
    def _drop_unread(cls, given: object) -> object:
        """Drop settings that a schedule replaces, and unused units: they must not affect the fingerprint."""
        if not isinstance(given, Mapping):
            return given
        unread = _without_schedule(given)
        return {name: value for name, value in given.items() if name not in unread}

    @classmethod
    def without_effect(cls, given: Mapping[str, Any]) -> dict[str, str]:
        """Return settings of other methods, settings that a schedule replaces, and unused units."""
        of_other_methods = {} if given.get("schedule") else super().without_effect(given)
        return of_other_methods | _without_schedule(given)

    @model_validator(mode="after")
    def _check_schedule(self) -> Self:
        starts = [point.start for point in self.schedule]
        if starts and starts[0] != 0:
            raise ValueError(
                f"schedule: the first start is {starts[0]:g} and must be 0; give the weights with which it "
                "begins"
            )
        for before, after in pairwise(starts):
            if after <= before:
                raise ValueError(
                    f"schedule: start={after:g} comes after start={before:g}, but starts must increase; put "
                    "the points in order, each start once"
                )
        stops = [ramp.stop for ramp in (*self.warmup.values(), *self.annealing.values())]
        furthest = max(starts + stops, default=0)
        if self.schedule_unit == "fraction" and furthest > 1:
            raise ValueError(
                f"schedule: {furthest:g} must be at most 1, since schedule_unit='fraction'; "
                "set schedule_unit = 'steps' or 'tokens'"
            )
        if self.schedule_unit == "steps" and self.global_batch_size is None:
            raise ValueError("schedule_unit='steps' needs global_batch_size (sequences per step), e.g. 1024")
        if self.method == "unimax" and not self.schedule:
            self._check_unimax(has_ramps=bool(stops))
        return self

    def _check_unimax(self, *, has_ramps: bool) -> None:
        if has_ramps:
            raise ValueError(
                "warmup and annealing need fixed shares, but method='unimax' adapts them to the limits; "
                "use 'weights', 'proportions' or 'temperature' with them"
            )
        limit = self.max_repetition
        most = max(limit.values(), default=1.0) if isinstance(limit, Mapping) else limit
        if most <= 1 and self.total_tokens is None:
            raise ValueError(
                "method='unimax' with max_repetition=1 and no total_tokens takes every source whole, as "
                "'proportional' does; set how often small ones may be drawn, e.g. max_repetition = 4"
            )

    @property
    def is_scheduled(self) -> bool:
        """Whether the shares change over the run."""
        return bool(self.schedule or self.warmup or self.annealing)

    def place(self, value: float) -> Decimal:
        """A start or stop in tokens, or as a fraction if that is the unit."""
        scale = (self.sequence_length or 0) * (self.global_batch_size or 0)
        return decimal(value) * (scale if self.schedule_unit == "steps" else 1)

    def described(self, place: Decimal) -> str:
        """Describe a place, given in tokens or as a fraction, in the schedule's unit."""
        if self.schedule_unit == "steps":
            steps = place / ((self.sequence_length or 1) * (self.global_batch_size or 1))
            return f"step {steps.normalize():f} (token {place.normalize():f})"
        written = f"{place.normalize():f}"
        return f"{written} of the run" if self.schedule_unit == "fraction" else f"token {written}"


def _without_schedule(given: Mapping[str, Any]) -> dict[str, str]:
    """The settings that a schedule replaces or that need one, and the units that nothing is given in."""
    unread = {"change": "there is no schedule"}
    if given.get("schedule"):
        replaced = ("method", "temperature", "weights", "proportions")
        unread = dict.fromkeys(replaced, "schedule has the weights")
    is_constant = not any(given.get(name) for name in ("schedule", "warmup", "annealing"))
    if is_constant:
        unread["schedule_unit"] = "there is no schedule, warmup or annealing"
    if is_constant or given.get("schedule_unit") != "steps":
        units = ("sequence_length", "global_batch_size")
        unread |= dict.fromkeys(units, "no start or stop is given in steps")
    return unread
