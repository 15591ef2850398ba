"""The DAG of a sweep: tokenizers of several families, balances and sizes, trained on the same text.

    sources ─ corpus ─┬─ counts ───────────────────────┐
                      ├─ balance (of each temperature) ┼─ cells ─ sweep
                      └─ counts of the text held out ──┘

The text is counted once for all families that cut it alike. The largest cell of each curve comes first, and
trains the others' tokenizers with its own (`tasks.sweep.cell`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from tokmill.flows.errors import ProfileError
from tokmill.flows.profile import Profile
from tokmill.flows.profile.fields import value_in_words
from tokmill.flows.profile.problems import first_problem
from tokmill.flows.run.composer import Composer, Locate
from tokmill.flows.run.dag import Dag, Job, JobInput
from tokmill.flows.run.sources import Sources
from tokmill.tasks.balance.stage import BALANCE, BalanceParams
from tokmill.tasks.count.stage import COUNT
from tokmill.tasks.holdout.stage import VALIDATION
from tokmill.tasks.ingest.stage import INGEST
from tokmill.tasks.sampling import MAX_TEMPERATURE
from tokmill.tasks.sweep.cell import CellParams, cell_among, curve_of, temperature_text
from tokmill.tasks.sweep.recommendation import SweepParams
from tokmill.tasks.sweep.stage import SWEEP, SweepStageParams
from tokmill.tasks.train.stage import TrainParams
from tokmill.tokenizer.pipeline.families import FamilyName

P = TypeVar("P", bound=BaseModel)
_MOST_TRIED = 1000
_WORDS = {"families": "family", "vocab_sizes": "vocab size", "temperatures": "temperature"}


class Grid(BaseModel):
    """The settings that a sweep tries, all with all; an empty list stands for the profile's own."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    vocab_sizes: list[Annotated[int, Field(ge=2)]] = Field(
        default=[],
        max_length=_MOST_TRIED,
        description="Tokens in the vocabulary, special and reserved ones included.",
    )
    temperatures: list[Annotated[float, Field(gt=0, le=MAX_TEMPERATURE, allow_inf_nan=False)]] = Field(
        default=[], max_length=_MOST_TRIED, description="T of the balance, in p ∝ n^(1/T)."
    )
    families: list[FamilyName] = Field(
        default=[], max_length=_MOST_TRIED, description="Families of tokenizers."
    )

    @field_validator("vocab_sizes", "temperatures", "families")
    @classmethod
    def _once_each(cls, values: list[object]) -> list[object]:
        twice = [value for value in values if values.count(value) > 1]
        if twice:
            raise ValueError(f"{twice[0]} is named twice; name each once")
        return values


def tried(grid: Grid) -> list[str]:
    """Return what a grid tries, in words, for the name of a run: `vocab size 4,000 / 8,000`."""
    return [
        f"{words} {' / '.join(value_in_words(value) for value in values)}"
        for key, words in _WORDS.items()
        if (values := getattr(grid, key))
    ]


def grid_of(vocab_sizes: Iterable[int], temperatures: Iterable[float], families: Iterable[str]) -> Grid:
    """Return a grid of these settings."""
    with _contradictions("sweep"):
        return Grid(
            vocab_sizes=list(vocab_sizes),
            temperatures=list(temperatures),
            families=list(families),
        )


def model_of(**given: Any) -> SweepParams:
    """Return the model that a sweep's tokenizers are for; see `SweepParams`."""
    with _contradictions("sweep"):
        return SweepParams(**given)


@dataclass(frozen=True)
class Curve:
    """The tokenizers of a sweep that differ in size alone."""

    train: TrainParams  # their parameters; `vocab_size` is replaced by each size
    balance: BalanceParams  # the balance that they are trained with
    temperature: float | None  # its T, if the grid names temperatures

    @property
    def name(self) -> str:
        """The part of the artifacts' names that is the curve's."""
        return curve_of(self.train.family, self.temperature)


def curves_of(profile: Profile, grid: Grid) -> list[Curve]:
    """Return the curves of a grid, by family, then temperature."""
    train = profile.training()
    if train is None:
        raise ProfileError(
            f"profile {profile.name!r}: a sweep trains tokenizers, and the profile names an existing one "
            "(tokenizer.use); take [tokenizer] out"
        )
    temperatures: list[float] | list[None] = grid.temperatures or [None]
    with _contradictions(f"profile {profile.name!r}: sweep"):
        return [
            Curve(_with(train, family=family), _at(profile.balance, temperature), temperature)
            for family in grid.families or [train.family]
            for temperature in temperatures
        ]


@contextmanager
def _contradictions(place: str) -> Iterator[None]:
    """Report what is wrong with settings."""
    try:
        yield
    except ValidationError as error:
        raise ProfileError(f"{place}: {first_problem(error)}") from error


def _with(params: P, **values: Any) -> P:
    """Return parameters with other values, checked together."""
    return type(params).model_validate({**params.model_dump(exclude_unset=True), **values})


def _at(balance: BalanceParams, temperature: float | None) -> BalanceParams:
    return balance if temperature is None else _with(balance, method="temperature", temperature=temperature)


def compose_sweep(profile: Profile, grid: Grid, model: SweepParams, sources: Sources, locate: Locate) -> Dag:
    """Return the DAG of a sweep."""
    return _Sweep(profile, sources, locate).dag(grid, model)


class _Sweep(Composer):
    def dag(self, grid: Grid, model: SweepParams) -> Dag:
        curves = curves_of(self.profile, grid)
        ingested = self.one(INGEST, self.profile.ingest_params(), {"files": self.sources.files})
        corpus, held_out = self.parts(ingested)
        cells: list[Job] = []
        for curve in curves:
            sizes = sorted(grid.vocab_sizes or [curve.train.vocab_size], reverse=True)
            inputs = self._inputs(corpus, held_out, curve)
            first = self._cell(curve, sizes[0], sizes, inputs)
            cells += [first, *(self._cell(curve, size, sizes[1:], inputs, [first]) for size in sizes[1:])]
        params = SweepStageParams(**model.model_dump(), held_out=held_out is not None)
        sweep = self.one(SWEEP, params, {"cells": cells})
        return Dag(self.jobs, {"corpus": corpus, "sweep": sweep})

    def _inputs(self, corpus: Job, held_out: Job | None, curve: Curve) -> dict[str, JobInput]:
        counts = self._counts(corpus, curve.train, "")
        text = counts if held_out is None else self._counts(held_out, curve.train, VALIDATION)
        return {
            "counts": counts,
            "balance": self._balance(corpus, curve),
            "text": text,
            "parallel": self.sources.parallel,
        }

    def _counts(self, corpus: Job, train: TrainParams, part: str) -> Job:
        """The counts of a corpus, once for all families that cut text alike."""
        params = train.count_params()
        made = [job for job in self.jobs if job.stage is COUNT and job.inputs["corpus"] is corpus]
        known = next((job for job in made if job.params == params), None)
        label = ".".join(filter(None, [part, train.family if made else ""]))
        return known or self.counted(corpus, params, label)

    def _balance(self, corpus: Job, curve: Curve) -> Job:
        made = (job for job in self.jobs if job.stage is BALANCE and job.params == curve.balance)
        label = "" if curve.temperature is None else f"T{temperature_text(curve.temperature)}"
        return next(made, None) or self.one(BALANCE, curve.balance, {"corpus": corpus}, part=label)

    def _cell(
        self,
        curve: Curve,
        size: int,
        among: list[int],
        inputs: Mapping[str, JobInput],
        needs: Sequence[Job] = (),
    ) -> Job:
        """Train a tokenizer, and those of the other sizes with it."""
        values = {**curve.train.model_dump(exclude_unset=True), "vocab_size": size}
        with _contradictions(f"profile {self.profile.name!r}: sweep: {curve.name}"):
            params = CellParams.model_validate({**values, "reference": self.profile.audit.reference})
        name = f"{self.profile.name}.{curve.name}-{size}"
        job = Job(cell_among(among), f"cell[{curve.name}/{size}]", name, params, dict(inputs), needs)
        self.jobs.append(job)
        return job
