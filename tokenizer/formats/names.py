"""The names of tokenizer files, by which a format is recognised."""

TOKMILL = "tokmill.json"
HUGGINGFACE = "tokenizer.json"
TIKTOKEN_SUFFIX, TIKTOKEN = ".tiktoken", "tokenizer.tiktoken"
GPT2_VOCAB, GPT2_MERGES = "vocab.json", "merges.txt"
