"""The family of byte-level BPE, for `pipeline.families`."""

from collections.abc import Sequence

from tokmill.tokenizer.byte_bpe.model import NAME, BytePairModel
from tokmill.tokenizer.byte_bpe.training import BytePairTraining
from tokmill.tokenizer.pipeline.families import Family

_FORMATS = "tokmill.tokenizer.byte_bpe.formats"


def _least_vocab_size(special_tokens: Sequence[str], num_reserved: int) -> int:
    """Return the size of a vocabulary of all bytes and the special and reserved tokens; at least 257."""
    return 256 + max(1, len(special_tokens) + num_reserved)


FAMILY = Family(
    NAME,
    "Byte-level BPE",
    "merges",
    BytePairModel.from_spec,
    BytePairTraining,
    _least_vocab_size,
    {name: f"{_FORMATS}.{name}" for name in ("huggingface", "gpt2", "tiktoken", "tekken", "gguf")},
)
