"""Tokenizers for language models: train, encode, decode, in formats that others read.

    from tokmill import tokenizer

    tok = tokenizer.train(texts, vocab_size=32_000, special_tokens=["<|endoftext|>"])
    tok = tokenizer.load("path/to/file-or-directory")
    tok.encode("text")

Importing this package is cheap: modules are loaded when their names are first used, and numba when a
kernel is first called.
"""

import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokmill.tokenizer.core.buffers import EncodedBatch
    from tokmill.tokenizer.core.errors import (
        FormatError,
        LawError,
        PatternError,
        SpecialTokenError,
        TokenizerError,
        TrainingError,
        VocabularyError,
    )
    from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
    from tokmill.tokenizer.loading import load
    from tokmill.tokenizer.splitting import SPLIT_PATTERNS
    from tokmill.tokenizer.tokenizer import Tokenizer
    from tokmill.tokenizer.training import count_pretokens, train, train_from_counts, train_sweep_from_counts
    from tokmill.tokenizer.training_options import TrainingOptions

_HOMES = {
    "EncodedBatch": "core.buffers",
    "FormatError": "core.errors",
    "LawError": "core.errors",
    "PatternError": "core.errors",
    "PretokenCounts": "core.pretoken_counts",
    "SPLIT_PATTERNS": "splitting",
    "SpecialTokenError": "core.errors",
    "Tokenizer": "tokenizer",
    "TokenizerError": "core.errors",
    "TrainingError": "core.errors",
    "TrainingOptions": "training_options",
    "VocabularyError": "core.errors",
    "count_pretokens": "training",
    "load": "loading",
    "train": "training",
    "train_from_counts": "training",
    "train_sweep_from_counts": "training",
}

__all__ = [
    "SPLIT_PATTERNS",
    "EncodedBatch",
    "FormatError",
    "LawError",
    "PatternError",
    "PretokenCounts",
    "SpecialTokenError",
    "Tokenizer",
    "TokenizerError",
    "TrainingError",
    "TrainingOptions",
    "VocabularyError",
    "count_pretokens",
    "load",
    "train",
    "train_from_counts",
    "train_sweep_from_counts",
]


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a package's `__getattr__`, which imports a name's module when the name is first used."""

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)

    return find


__getattr__ = lazy_names(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
