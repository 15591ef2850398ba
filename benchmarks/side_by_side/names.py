"""The names that the command line knows: texts, vocabularies, sides. Nothing is imported here."""

CORPORA = {
    "english": "english_docs",
    "code": "code",
    "japanese": "japanese_literature",
    "chinese": "chinese_poetry",
    "multilingual": "multilingual_docs",
}
PROSE = (*CORPORA, "ntrex")
HARD = ("one_letter", "han_line", "base64")
TRAINING_TEXTS = ("english+code", "everything")
VOCABULARIES = ("gpt2", "cl100k", "o200k")
TRAINED = "trained"  # a vocabulary that tokmill trains on the Japanese text, split as GPT-2 splits
PATTERNS = ("gpt2", "cl100k", "o200k", "deepseek_v3")

AHEAD = "tokenizers 1.0rc"  # the pre-release, beside the current release
# ours first
ENCODERS = (
    "tokmill",
    "tokmill from str",
    "tiktoken",
    "tokenizers",
    AHEAD,
    "gigatoken",
    "fastokens",
    "quicktok-v1",
)
FAMILY_ENCODERS = (
    "tokmill",
    "tokmill from str",
    "tokenizers",
    AHEAD,
    "sentencepiece",
    "nanotoken",
    "kitoken",
    "splintr-rs",
    "tokie",
    "iree-tokenizer",
    "gigatoken",
)
FAMILY_VOCABULARIES = {
    "bert": "tokenizers",
    "unigram": "tokenizers",
    "sentencepiece": "sentencepiece",
    "sentencepiece-bpe": "sentencepiece",
}  # and whose ids are right
FAMILY_TRAININGS = {
    "wordpiece": "tokenizers",
    "word_bpe": "tokenizers",
    "unigram": "sentencepiece",
    "sentencepiece-bpe": "sentencepiece",
}  # and whose pieces ours are compared with
TRAINERS = (
    "tokmill",
    "tokmill from str",
    "tokenizers",
    "gigatoken",
    "gigabpe",
    "rustbpe",
    "bpeasy",
    "sentencepiece",
)
SPLITTERS = ("tokmill", "regex")
OURS = ("tokmill", "tokmill from str")
