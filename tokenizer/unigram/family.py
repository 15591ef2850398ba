"""The family of unigram language models, for `pipeline.families`."""

from tokmill.tokenizer.pipeline.families import Family
from tokmill.tokenizer.unigram.model import NAME, UnigramModel
from tokmill.tokenizer.unigram.training import UnigramTraining, check_options, least_vocab_size

FAMILY = Family(
    NAME,
    "Unigram",
    "pruned pieces",
    UnigramModel.from_spec,
    UnigramTraining,
    least_vocab_size,
    {
        "huggingface": "tokmill.tokenizer.unigram.huggingface",
        "sentencepiece": "tokmill.tokenizer.unigram.sentencepiece",
        "gguf": "tokmill.tokenizer.unigram.gguf",
    },
    check_options=check_options,
    revision=3,
)
