"""`vocab_entropy`: how evenly a text uses the vocabulary, and how well simple models predict its ids.

Efficiencies are entropies (Shannon's; Rényi's of order 2.5, Zouhar et al. 2023) over the logarithm of the
number of ordinary tokens. Bits per byte compare any units; they are NULL where a document comes back
changed. Every second document trains the models that score the others, and the other way round. Each source
has its own unigram model, whose frequencies have 1/2 added to each. The trigram model costs ten times as much
as encoding, so each shard or text has its own, by every n-th document: the same ones with every tokenizer.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

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
_TRIGRAM_BYTES = 1 << 19
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
    given = None if reference is None else {**reference, ALL: sum(reference.values())}
    unigrams = {name: _unigram_bits(one) for name, one in sources.items()}

    def row(name: str, of: Sequence[str]) -> dict[str, Any]:
        every = total(tok, {one: sources[one] for one in of})
        number = every.amounts.num_tokens
        return {
            **{"text": text, "source": name, "num_tokens": number},
            **_evenness(every.token_counts[ordinary]),
            **_per_byte([(sources[one], unigrams[one]) for one in of]),
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


def _per_byte(several: Sequence[tuple[Measured, float | None]]) -> dict[str, float | None]:
    """Return bits per byte of the sources that have any; None for all if text is lost in one."""
    lost = any(one.amounts.num_changed for one, _ in several)
    pairs = {
        "unigram": [(unigram, one.amounts.num_bytes) for one, unigram in several if unigram is not None],
        "trigram": [(one.modelled_bits, one.modelled_bytes) for one, _ in several],
    }
    return {
        f"{name}_bits_per_byte": None if lost or not some else ratio(*map(sum, zip(*some, strict=True)))
        for name, some in pairs.items()
    }


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
    if one.amounts.num_documents < 2:
        return None
    halves = one.halves.astype(np.float64)
    chances = [(half + 0.5) / (half.sum() + 0.5 * len(half)) for half in halves]
    return float(sum(-(halves[1 - half] @ np.log2(chances[half])) for half in (0, 1)))


def fit_trigrams(one: Measured) -> Measured:
    """Add what trigram models need, by those of about 512 KiB of text; nothing if some of it is lost."""
    raise_if_stopped()
    vocab_size, amounts = one.halves.shape[1], one.amounts
    few = min(-(-amounts.num_bytes // _TRIGRAM_BYTES), amounts.num_documents // 2)
    some = one.documents(max(few, 1))
    halves = [some[half::2] for half in (0, 1)]
    if vocab_size > _MOST_IDS or amounts.num_changed or not all(any(map(len, half)) for half in halves):
        return one
    bits = sum(_scored(halves[half], halves[1 - half], vocab_size) for half in (0, 1))
    bits *= amounts.num_tokens / sum(map(len, some))
    return replace(one, modelled_bytes=amounts.num_bytes, modelled_bits=round(bits, 3))


def _scored(
    training: Sequence[NDArray[np.uint32]], scored: Sequence[NDArray[np.uint32]], vocab_size: int
) -> float:
    model = train(training, vocab_size)
    lengths = np.array([len(document) for document in scored], np.int64)
    starts = np.cumsum(lengths) - lengths
    nats = np.zeros(len(scored), np.float32)
    surprisals(np.concatenate(scored).astype(np.int64), starts, lengths, np.arange(len(scored)), model, nats)
    has_tokens = lengths > 0
    return math.fsum((nats[has_tokens] * lengths[has_tokens].astype(np.float64)).tolist()) / math.log(2)
