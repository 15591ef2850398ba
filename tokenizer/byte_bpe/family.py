"""Byte-level BPE as a family: what `pipeline.families` finds."""

from tokmill.tokenizer.byte_bpe.model import NAME, BytePairModel
from tokmill.tokenizer.byte_bpe.training import BytePairTraining
from tokmill.tokenizer.pipeline.families import Family

_FORMATS = "tokmill.tokenizer.byte_bpe.formats"

FAMILY = Family(
    NAME,
    "Byte-level BPE",
    "merges",
    BytePairModel.from_spec,
    BytePairTraining,
    {name: f"{_FORMATS}.{name}" for name in ("huggingface", "gpt2", "tiktoken")},
)
