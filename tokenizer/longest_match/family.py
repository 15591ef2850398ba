"""The family of longest match, for `pipeline.families`."""

from tokmill.tokenizer.longest_match.model import NAME, LongestMatchModel
from tokmill.tokenizer.longest_match.training import LongestMatchTraining, check_options, least_vocab_size
from tokmill.tokenizer.pipeline.families import Family

FAMILY = Family(
    NAME,
    "Longest match",
    "pieces",
    LongestMatchModel.from_spec,
    LongestMatchTraining,
    least_vocab_size,
    {name: f"tokmill.tokenizer.longest_match.{name}" for name in ("rwkv", "gguf")},
    check_options=check_options,
)
