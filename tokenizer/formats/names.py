"""The names of tokenizer files, by which their format is recognized."""

TOKMILL = "tokmill.json"
HUGGINGFACE = "tokenizer.json"
TIKTOKEN_SUFFIX, TIKTOKEN = ".tiktoken", "tokenizer.tiktoken"
GPT2_VOCAB, GPT2_MERGES = "vocab.json", "merges.txt"
