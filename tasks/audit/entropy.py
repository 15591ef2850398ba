"""`vocab_entropy`: how evenly a text uses the vocabulary, and how well simple models predict its ids.

Efficiencies are entropies (Shannon's; Rényi's of order 2.5, Zouhar et al. 2023) over the logarithm of the
number of ordinary tokens. Bits per byte compare any units; they are NULL where a document comes back
changed. Each source has its own models, and `*` the sum of their bits. Every second document trains the
models that score the others, and the other way round; frequencies of the unigram model have 1/2 added to
each. The trigram model, which costs ten times as much as encoding, takes every n-th document, of about 2 MiB
in all: the same ones with every tokenizer.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokmill.tasks.audit.measurement import Measured
from tokmill.tasks.audit.sources import ALL, ratio, total
from tokmill.tasks.audit.tokens import EXTRAORDINARY
from tokmill.tasks.kernels.scoring import surprisals
from tokmill.tasks.score.kneser_ney import train
from tokmill.tokenizer import Tokenizer
from tokmill.tokenizer.core.stopping import raise_if_stopped

RENYI_ORDER = 2.5
_MOST_IDS = 1 << 20  # three ids must fit into 63 bits
_TRIGRAM_BYTES = 1 << 21
_I, _F, _S = pa.int64(), pa.float64(), pa.string()
SCHEMA = pa.schema(
    [
        *(("text", _S), ("source", _S), ("num_tokens", _I), ("shannon_bits", _F), ("shannon_efficiency", _F)),
        *(("renyi_efficiency", _F), ("unigram_bits_per_byte", _F), ("trigram_bits_per_byte", _F)),
        ("normalized_length", _F),
    ]
)


def entropies(
    tok: Tokenizer, text: str, sources: Mapping[str, Measured], reference: Mapping[str, int] | None = None
) -> pa.Table:
    """Return the table `vocab_entropy`."""
    ordinary = np.array([kind not in EXTRAORDINARY for kind in tok.definition.kinds()], np.bool_)
    bits = {name: _Bits.of(one, tok.vocab_size) for name, one in sources.items()}
    given = None if reference is None else {**reference, ALL: sum(reference.values())}

    def row(name: str, of: Sequence[str]) -> dict[str, Any]:
        every = total(tok, {one: sources[one] for one in of})
        number = every.amounts.num_tokens
        return {
            **{"text": text, "source": name, "num_tokens": number},
            **_evenness(every.token_counts[ordinary]),
            **_Bits.per_byte([bits[one] for one in of]),
            "normalized_length": None if given is None else ratio(number, given.get(name, 0)),
        }

    rows = [row(name, [name]) for name in sources]
    return pa.Table.from_pylist(rows if len(rows) < 2 else [*rows, row(ALL, [*sources])], SCHEMA)


def _evenness(counts: NDArray[np.uint64]) -> dict[str, float | None]:
    bits = shannon_bits(counts)
    return {
        "shannon_bits": None if bits is None else round(bits, 6),
        "shannon_efficiency": None
        if bits is None or len(counts) < 2
        else ratio(bits, math.log2(len(counts))),
        "renyi_efficiency": renyi_efficiency(counts),
    }


class _Bits(NamedTuple):
    """What the models of one source need for it; None without two documents."""

    num_bytes: int
    is_lost: bool
    unigram: float | None
    trigram: float | None

    @classmethod
    def of(cls, one: Measured, vocab_size: int) -> Self:
        """Fit the models, unless text is lost."""
        raise_if_stopped()
        num_bytes, is_lost = one.amounts.num_bytes, one.amounts.num_changed > 0
        if is_lost:
            return cls(num_bytes, is_lost, None, None)
        few = min(-(-num_bytes // _TRIGRAM_BYTES), one.amounts.num_documents // 2)
        some = one.documents(max(few, 1))
        trigram = _trigram_bits(some, vocab_size)
        if trigram is not None:
            trigram *= one.amounts.num_tokens / sum(map(len, some))
        return cls(num_bytes, is_lost, _unigram_bits(one), trigram)

    @staticmethod
    def per_byte(several: Sequence["_Bits"]) -> dict[str, float | None]:
        """Bits per byte of the sources that have any; None for all if one is lost."""
        found: dict[str, float | None] = {}
        for name in ("unigram", "trigram"):
            having = [(bits, one.num_bytes) for one in several if (bits := getattr(one, name)) is not None]
            known = having and not any(one.is_lost for one in several)
            sums = map(sum, zip(*having, strict=True)) if known else None
            found[f"{name}_bits_per_byte"] = ratio(*sums) if sums else None
        return found


def shannon_bits(token_counts: NDArray[np.uint64]) -> float | None:
    """Return the entropy of some frequencies in bits; None if nothing occurs."""
    counts, total = _numbers(token_counts)
    bits = (-times * count / total * math.log2(count / total) for count, times in counts)
    return math.fsum(bits) if counts else None


def renyi_efficiency(token_counts: NDArray[np.uint64]) -> float | None:
    """Rényi entropy of order 2.5 of the tokens' frequencies over the logarithm of their number.

    Args:
        token_counts: uint64 [n], how often each token occurs. The audit passes ordinary tokens only: special
            and reserved tokens stand for no text, and the number of end tokens depends on the length of the
            documents.

    Returns:
        H / log n in [0, 1], rounded to six digits: the efficiency of Zouhar et al. 2023, "Tokenization and
        the Noiseless Channel", with the order that they recommend. (They divide by the logarithm of the size
        of the whole vocabulary.) None if no token occurs, or n < 2.
    """
    counts, total = _numbers(token_counts)
    if not counts or len(token_counts) < 2:
        return None
    power = math.fsum(times * (count / total) ** RENYI_ORDER for count, times in counts)
    return round(math.log(power) / (1 - RENYI_ORDER) / math.log(len(token_counts)), 6)


def _numbers(token_counts: NDArray[np.uint64]) -> tuple[list[tuple[int, int]], int]:
    """Return each number of occurrences with how many tokens have it, and the sum of all."""
    found = np.unique(token_counts[token_counts > 0], return_counts=True)
    counts = [*zip(*(column.tolist() for column in found), strict=True)]
    return counts, sum(count * times for count, times in counts)


def _unigram_bits(one: Measured) -> float | None:
    """Return what the unigram models of both halves need for the other; None without two documents."""
    lengths = np.diff(one.offsets)
    if len(lengths) < 2:
        return None
    of_first = one.ids[np.repeat(np.arange(len(lengths)) % 2 == 0, lengths)]
    first = np.bincount(of_first, minlength=len(one.token_counts)).astype(np.float64)
    halves = [first, one.token_counts.astype(np.float64) - first]
    chances = [(half + 0.5) / (half.sum() + 0.5 * len(half)) for half in halves]
    return float(sum(-(halves[1 - half] @ np.log2(chances[half])) for half in (0, 1)))


def _trigram_bits(documents: Sequence[NDArray[np.uint32]], vocab_size: int) -> float | None:
    """Return what the trigram models of both halves need for the other one, likewise."""
    halves = [documents[half::2] for half in (0, 1)]
    if vocab_size > _MOST_IDS or not all(any(map(len, half)) for half in halves):
        return None
    return sum(_scored(halves[half], halves[1 - half], vocab_size) for half in (0, 1))


def _scored(
    training: Sequence[NDArray[np.uint32]], scored: Sequence[NDArray[np.uint32]], vocab_size: int
) -> float:
    model = train(training, vocab_size)
    lengths = np.array([len(document) for document in scored], np.int64)
    starts = np.cumsum(lengths) - lengths
    nats = np.zeros(len(scored), np.float32)
    surprisals(np.concatenate(scored).astype(np.int64), starts, lengths, np.arange(len(scored)), model, nats)
    has_tokens = lengths > 0
    return float(nats[has_tokens].astype(np.float64) @ lengths[has_tokens]) / math.log(2)
