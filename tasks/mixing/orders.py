"""Choose the order of each source's documents: shuffled, or by the curriculum."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tokmill.tasks.core.errors import MixingError
from tokmill.tasks.formats.encoded import EncodedManifest
from tokmill.tasks.formats.scores import ScoredShard, components_of
from tokmill.tasks.mixing.curriculum import Paced, Sorted
from tokmill.tasks.mixing.difficulty import Difficulty, Measure, Scores
from tokmill.tasks.mixing.draw import Order
from tokmill.tasks.mixing.lengths import SourceLengths, Standing
from tokmill.tasks.mixing.params import CurriculumParams, MixParams
from tokmill.tasks.mixing.quotas import Asked
from tokmill.tasks.mixing.shuffled import Shuffled
from tokmill.tasks.mixing.sorting import Scratch

_TWO_SIDED = ("compression",)


@dataclass(frozen=True)
class ScoreShards:
    """The scores of all shards.

    Attributes:
        paths: measure → source → directories of the source's shards, in order.
    """

    paths: Mapping[str, Mapping[str, Sequence[Path]]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        manifest: EncodedManifest,
        rules: CurriculumParams | None,
        scores: Mapping[str, Sequence[Path]],
    ) -> "ScoreShards":
        """Group scores by source."""
        chosen = [entry for entry in manifest.sources if rules and rules.has(entry.source)]
        number = sum(len(entry.shards) for entry in chosen)
        paths: dict[str, dict[str, Sequence[Path]]] = {}
        for measure, given in scores.items():
            if len(given) != number:
                raise MixingError(
                    f"mix: {len(given)} shards have scores of '{measure}', but {number} are mixed by it; "
                    "score every shard of the sources that have a curriculum"
                )
            left = iter(given)
            paths[measure] = {entry.source: [next(left) for _ in entry.shards] for entry in chosen}
        return cls(paths)

    def openers(self, measure: str, source: str, component: str) -> list[Scores]:
        """Functions that open the scores of each of a source's shards."""
        if measure not in self.paths:
            raise MixingError(
                f"mix: curriculum.difficulty names '{measure}', but no scores of it were given; score the "
                "encoding first"
            )
        return [_opener(path, measure, component) for path in self.paths[measure][source]]


def _opener(path: Path, measure: str, component: str) -> Scores:
    return lambda: ScoredShard.open(path, measure).component(component)


def orders(
    params: MixParams,
    sources: Mapping[str, SourceLengths],
    settled: Asked,
    scores: ScoreShards,
    standings: Mapping[str, Standing],
    scratch: Scratch,
) -> dict[str, Order]:
    """The order of each source."""
    found: dict[str, Order] = {}
    shifts = settled.history.shifts(settled.curves)
    for source, lengths in sources.items():
        rules, least = params.curriculum, standings[source].least
        if rules is None or not rules.has(source):
            found[source] = Shuffled(source, lengths, params.seed, scratch, least)
            continue
        measures = list(_measures(rules, source, scores))
        difficulty = Difficulty(source, lengths, measures, params.seed, scratch)
        if rules.order == "easy_to_hard":
            found[source] = Sorted(difficulty, least)
        else:
            quota = settled.quotas[source]
            begin = quota.given_tokens + float(shifts[source])
            found[source] = Paced(difficulty, rules.function(), settled.curves, quota.copies, begin)
    return found


def _measures(rules: CurriculumParams, source: str, scores: ScoreShards) -> Iterator[Measure]:
    for name, weight in rules.difficulty.items():
        if name == "length":
            yield Measure(name, weight)
            continue
        components = components_of(name)
        for component in components:
            openers = scores.openers(name, source, component)
            yield Measure(name, weight / len(components), openers, component in _TWO_SIDED)
