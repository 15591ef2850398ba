"""Learn vocabularies from weighted counts: one, or several sizes of it in the time of the largest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tokmill.tasks.core.context import report_progress
from tokmill.tasks.core.stage import Outcome, Scalar
from tokmill.tasks.formats.counts import Balance, Counts, PreTokenization
from tokmill.tasks.formats.tokenizer import publish_tokenizer
from tokmill.tasks.sampling import proportions
from tokmill.tasks.train.memory import fitting_size, most_needed
from tokmill.tasks.train.reading import Weighted
from tokmill.tokenizer.core.errors import TrainingError
from tokmill.tokenizer.pipeline.families import find_family

if TYPE_CHECKING:
    from tokmill.tasks.train.stage import TrainParams
    from tokmill.tokenizer import PretokenCounts, Tokenizer


@dataclass(frozen=True)
class Learned:
    """Tokenizers that were trained on the same text.

    Attributes:
        tokenizers: in the order of the sizes that were asked for.
        figures: of the text, for the artifacts' metrics.
        shares: each source's share of the weighted pre-tokens' bytes.
    """

    tokenizers: Sequence["Tokenizer"]
    figures: Mapping[str, Scalar]
    shares: Mapping[str, float]


def learn(params: "TrainParams", counts: Path, balance: Path, sizes: Sequence[int]) -> Learned:
    """Train tokenizers that differ in nothing but `vocab_size`.

    Args:
        params: see `TrainParams`; its own `vocab_size` has no effect.
        counts: the counts artifact.
        balance: the balance artifact.
        sizes: the vocabulary sizes.

    Raises:
        TrainingError: the text was counted with other parameters, or has too few pairs for a vocabulary.
        BalanceError: a counted source is not in the balance.
        MachineError: this machine has too little memory for it.
    """
    counted, balanced = Counts.open(counts), Balance.open(balance)
    _check_cut(params.cut, counted.cut)
    weights = Weighted(counted, balanced, params.min_pretoken_frequency)
    weighted = weights.read(fitting_size(params, weights, most_needed(params, counted, balanced)))
    figures = {
        "num_weighted_pretokens": round(int(weighted.counts.sum()) / balanced.resolution),
        "num_distinct_pretokens": len(weighted),
        "num_distinct_bytes": weighted.num_distinct_bytes,
    }
    shares = proportions({source: Decimal(amount) for source, amount in weights.amounts.items()})
    tokenizers = _trained(params, weighted, balanced.resolution, sizes)
    return Learned(tokenizers, figures, {source: float(share) for source, share in shares.items()})


def publish(tokenizer: "Tokenizer", learned: Learned, out: Path) -> Outcome:
    """Write a tokenizer into `out`.

    Raises:
        TokenizerError: an export does not encode the probes as the tokenizer does.
    """
    exports = publish_tokenizer(tokenizer, out)
    return Outcome(
        metrics={
            "vocab_size": tokenizer.vocab_size,
            **tokenizer.definition.model.figures(),
            "num_special_tokens": len(tokenizer.special_tokens),
            "longest_token_bytes": int(tokenizer.definition.vocabulary.lengths.max(initial=0)),
            **learned.figures,
            "exports": ", ".join(exports),
            "unicode_tables": "{version} ({tables})".format(**tokenizer.splitter.unicode),
            **{f"share.{source}": share for source, share in learned.shares.items()},
        }
    )


def _trained(
    params: "TrainParams", weighted: "PretokenCounts", resolution: int, sizes: Sequence[int]
) -> "list[Tokenizer]":
    """Learn vocabularies from counts that are `resolution` times those of the balanced corpus."""
    from tokmill.tokenizer import train_sweep_from_counts

    least = params.min_frequency * resolution if params.min_frequency > 1 else 1
    given = params.model_dump(exclude={"vocab_size", "min_pretoken_frequency"})
    options = given | {"min_frequency": least, "count_unit": resolution}
    progress = partial(_report, find_family(params.family).unit)
    try:
        return train_sweep_from_counts(weighted, vocab_sizes=sizes, **options, progress=progress)
    except TrainingError as error:
        if least == params.min_frequency:
            raise
        scale = f"counts are {resolution} times those of the balanced corpus: min_frequency"
        raise TrainingError(f"{error} ({scale}={params.min_frequency} is {least} of them)") from error


def _report(unit: str, made: int, wanted: int) -> None:
    report_progress(made, wanted, unit)


def _check_cut(wanted: PreTokenization, found: PreTokenization) -> None:
    for name in type(wanted).model_fields:
        if getattr(wanted, name) != getattr(found, name):
            raise TrainingError(
                f"train: {name}={getattr(wanted, name)!r}, but the text was counted with "
                f"{getattr(found, name)!r}; count with the same parameters"
            )
