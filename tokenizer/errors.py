"""The tokenizer package's errors.

TokenizerError
├── PatternError        a split pattern that does not parse or cannot be used
├── TrainingError       counts or parameters that no vocabulary can be trained from
├── SpecialTokenError   a special token in ordinary text, or one that is not in the vocabulary
├── VocabularyError     a token id or a byte string that the vocabulary does not have
└── FormatError         a tokenizer file that cannot be read or written
"""


class TokenizerError(ValueError):
    """Base of everything that the tokenizer package raises on purpose."""


class PatternError(TokenizerError):
    """A split pattern that does not parse, or that matches nothing."""


class TrainingError(TokenizerError):
    """Counts or parameters from which the asked vocabulary cannot be trained."""


class SpecialTokenError(TokenizerError):
    """A special token where none is allowed, or one that the vocabulary does not know."""


class VocabularyError(TokenizerError):
    """A token id or a byte string outside the vocabulary."""


class FormatError(TokenizerError):
    """A tokenizer file that is missing, broken, or that the format cannot express."""
