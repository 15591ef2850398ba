"""The family of BPE over words, for `pipeline.families`."""

from tokmill.tokenizer.pipeline.families import Family
from tokmill.tokenizer.word_bpe.model import NAME, WordPairModel
from tokmill.tokenizer.word_bpe.training import WordPairTraining, check_options, least_vocab_size

FAMILY = Family(
    NAME,
    "BPE over words",
    "pieces",
    WordPairModel.from_spec,
    WordPairTraining,
    least_vocab_size,
    {name: f"tokmill.tokenizer.word_bpe.formats.{name}" for name in ("huggingface", "gpt2", "codes")},
    "end_of_word",
    check_options,
)
