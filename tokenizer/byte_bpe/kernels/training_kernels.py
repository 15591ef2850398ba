"""The kernels that read the training text, for narrow cells and for wide ones."""

from typing import Any, NamedTuple

from tokmill.tokenizer.byte_bpe.kernels.gathering import count_buckets, list_places, make_pairs
from tokmill.tokenizer.byte_bpe.kernels.training_merges import merge_pairs
from tokmill.tokenizer.byte_bpe.kernels.training_state import WideWords, Words
from tokmill.tokenizer.byte_bpe.kernels.training_text import compact
from tokmill.tokenizer.jit.kernel import Kernel


class TrainingKernels(NamedTuple):
    """The kernels of these names, for one width of cells."""

    compact: Kernel[..., int]
    count_buckets: Kernel[..., None]
    list_places: Kernel[..., None]
    make_pairs: Kernel[..., int]
    merge_pairs: Kernel[..., int]


NARROW = TrainingKernels(compact, count_buckets, list_places, make_pairs, merge_pairs)
_wide: list[Kernel[..., Any]] = [made.retyped({Words: WideWords}) for made in NARROW]
WIDE = TrainingKernels(*_wide)
