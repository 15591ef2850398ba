"""The family of WordPiece tokenizers, for `pipeline.families`."""

from tokmill.tokenizer.pipeline.families import Family
from tokmill.tokenizer.wordpiece.model import NAME, WordPieceModel
from tokmill.tokenizer.wordpiece.training import WordPieceTraining, check_options, least_vocab_size

FAMILY = Family(
    NAME,
    "WordPiece",
    "pieces",
    WordPieceModel.from_spec,
    WordPieceTraining,
    least_vocab_size,
    {name: f"tokmill.tokenizer.wordpiece.formats.{name}" for name in ("huggingface", "bert", "gguf")},
    "wordpiece",
    check_options=check_options,
    revision=1,
)
