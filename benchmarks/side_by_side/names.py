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
PATTERNS = ("gpt2", "cl100k", "o200k", "deepseek_v3")

# ours first
ENCODERS = ("tokmill", "tokmill from str", "tiktoken", "tokenizers", "gigatoken", "fastokens", "quicktok-v1")
TRAINERS = ("tokmill", "tokenizers", "gigatoken", "rustbpe", "bpeasy", "sentencepiece")
SPLITTERS = ("tokmill", "regex")
OURS = ("tokmill", "tokmill from str")
