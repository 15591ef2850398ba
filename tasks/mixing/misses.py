"""Compare a mixture with its request, and find the requests that it misses.

The model. A request sets the tokens of each source, the tokens in all, and for some sources the fewest
epochs. A source gives whole documents, so it may stop below or above its quota. A request is missed if the
difference exceeds `tolerance` times the requested tokens, and more than one token per source concerned.
Sources whose last document is split (`long_documents = "split"`) miss nothing. Tokens are those of the whole
run, so that a continued mixture misses the same requests as the whole.
"""

from collections.abc import Iterator, Mapping
from decimal import ROUND_CEILING, Decimal, localcontext

from tokmill.tasks.core.errors import MixingError
from tokmill.tasks.mixing.quotas import Quota
from tokmill.tasks.sampling import EXACT, decimal


def missed_requests(
    tolerance: float, quotas: Mapping[str, Quota], given: Mapping[str, int], *, refused: bool
) -> list[str]:
    """Return one sentence for each request that is missed by more than the tolerance, sources first.

    Args:
        tolerance: allowed difference from the request, as a fraction of it, ≥ 0.
        quotas: the request, by source.
        given: tokens that each source gives in the whole run.
        refused: whether to raise a MixingError for them, with the nearest settings that are accepted.
    """
    with localcontext(EXACT):
        missed = {
            words: Decimal(abs(gives - asks)) / max(1, asks)
            for words, asks, gives, always in _requests(quotas, given)
            if abs(gives - asks) > max(Decimal(always), decimal(tolerance) * asks)
        }
        if missed and refused:
            needed = max(missed.values()).quantize(Decimal("0.0001"), ROUND_CEILING)
            raise MixingError(
                f"mix: {'; '.join(missed)}: documents are whole, and tolerance={tolerance:g}. Feasible: "
                "long_documents='split', which ends each source's last document at its quota; or tolerance "
                f"of at least {needed:f}; or on_miss='warn'"
            )
    return [*missed]


def _requests(quotas: Mapping[str, Quota], given: Mapping[str, int]) -> Iterator[tuple[str, int, int, int]]:
    """Yield each request in words, with what it asks, what is given, and a difference that never counts."""
    asked_in_all, given_in_all = sum(quota.run_tokens for quota in quotas.values()), sum(given.values())
    for source, quota in quotas.items():
        share = Decimal(given[source]) / max(1, given_in_all)
        wanted = Decimal(quota.run_tokens) / max(1, asked_in_all)
        words = (
            f"'{source}' gives {given[source]} tokens ({share:.2%}), and {quota.run_tokens} ({wanted:.2%}) "
            "were asked for"
        )
        yield words, quota.run_tokens, given[source], 1
    for source, quota in quotas.items():
        words = (
            f"min_epochs={quota.min_epochs:g} of '{source}' asks for {quota.least_tokens} tokens of it, and "
            f"{given[source]} come"
        )
        if given[source] < quota.least_tokens:
            yield words, quota.least_tokens, given[source], 1
    words = f"{given_in_all} tokens come, and {asked_in_all} were asked for"
    yield words, asked_in_all, given_in_all, len(quotas)
