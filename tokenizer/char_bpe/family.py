"""The family of BPE over characters, for `pipeline.families`."""

from tokmill.tokenizer.char_bpe.model import NAME, CharacterPairModel
from tokmill.tokenizer.char_bpe.training import check_options, least_vocab_size, make_trainer
from tokmill.tokenizer.pipeline.families import Family

FAMILY = Family(
    NAME,
    "BPE over characters",
    "pieces",
    CharacterPairModel.from_spec,
    make_trainer,
    least_vocab_size,
    {
        "sentencepiece": "tokmill.tokenizer.char_bpe.sentencepiece",
        "huggingface": "tokmill.tokenizer.char_bpe.huggingface",
        "gguf": "tokmill.tokenizer.char_bpe.gguf",
    },
    check_options=check_options,
    revision=3,
)
