"""Make the timeline of all sources' weights from the parameters."""

from collections.abc import Iterator, Mapping
from decimal import Decimal

from tokmill.tasks.core.errors import MixingError
from tokmill.tasks.mixing.params import MixParams, RampParams, SchedulePoint
from tokmill.tasks.mixing.schedule import Ramp, Timeline
from tokmill.tasks.sampling import check_sources, explicit_weights, raw_weights


def timeline_of(params: MixParams, sizes: Mapping[str, int]) -> Timeline:
    """The weights over the run for sources of `sizes` tokens.

    Raises:
        MixingError: a source is unknown or has no weight, or steps have no length.
    """
    if params.schedule_unit == "steps" and params.sequence_length is None:
        raise MixingError(
            "mix: schedule_unit='steps' needs sequence_length, tokens per sequence; use e.g. that of [pack]"
        )
    sources = tuple(sizes)
    points = tuple(
        (params.place(point.start), tuple(_weights(point, sizes).values())) for point in params.schedule
    ) or ((Decimal(0), tuple(raw_weights(params, sizes, MixingError, "mix").values())),)
    return Timeline(
        sources=sources,
        points=points,
        change=params.change,
        ramps=tuple(_ramps(params, sources)),
        relative=params.schedule_unit == "fraction",
        described=params.described,
    )


def _weights(point: SchedulePoint, sizes: Mapping[str, int]) -> dict[str, Decimal]:
    what = f"schedule: the {'weights' if point.weights else 'proportions'} at {point.start:g}"
    return explicit_weights(what, point.given, sizes, MixingError, "mix")


def _ramps(params: MixParams, sources: tuple[str, ...]) -> Iterator[Ramp]:
    for what, ramps in (("warmup", params.warmup), ("annealing", params.annealing)):
        check_sources(f"{what}", ramps, sources, MixingError, "mix")
        for source, ramp in ramps.items():
            yield _ramp(params, sources.index(source), ramp, warms_up=what == "warmup")


def _ramp(params: MixParams, source: int, ramp: RampParams, *, warms_up: bool) -> Ramp:
    factor = Decimal(repr(ramp.factor))
    before, after = (factor, Decimal(1)) if warms_up else (Decimal(1), factor)
    return Ramp(source, params.place(ramp.start), params.place(ramp.stop), before, after, ramp.change)
