"""Pre-tokenization: split patterns, compiled once and run over batches of documents.

    splitter = compile_pattern("gpt2")                 # or any regular expression, or a chain of them
    pretokens = splitter.split(data, offsets)          # starts, ends, offsets

See `patterns` for the names, `splitter` for the laws, and `fallback` for the dialect.
"""

from tokmill.tokenizer.splitting.patterns import SPLIT_CHAINS, SPLIT_PATTERNS, Digits, PatternLike, resolve
from tokmill.tokenizer.splitting.splitter import Pretokens, Splitter, compile_pattern

__all__ = [
    "SPLIT_CHAINS",
    "SPLIT_PATTERNS",
    "Digits",
    "PatternLike",
    "Pretokens",
    "Splitter",
    "compile_pattern",
    "resolve",
]
