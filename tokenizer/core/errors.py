"""The tokenizer package's errors.

TokenizerError
├── PatternError        a split pattern that does not parse or cannot be used
├── TrainingError       counts or parameters that no vocabulary can be trained from
├── SpecialTokenError   a special token in ordinary text, or one that is not in the vocabulary
├── VocabularyError     a token id or a byte string that the vocabulary does not have
├── FormatError         a tokenizer file that cannot be read or written
└── LawError            an encoding that cannot be right: a bug of ours, or a fault of the machine
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def refuse_malformed(where: str) -> Iterator[None]:
    """Turn the errors of parsing data into a `FormatError`."""
    try:
        yield
    except TokenizerError:
        raise
    except (KeyError, TypeError, AttributeError, IndexError, ValueError, OverflowError) as error:
        raise FormatError(f"{where}: broken: {_problem(error)}; save the tokenizer again") from error


def _problem(error: Exception) -> str:
    """Return what is wrong with the data, as far as the error of parsing says it."""
    if isinstance(error, KeyError):
        return f"there is no {error!s:.300}"
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 at byte {error.start}"
    what = "type" if isinstance(error, TypeError | AttributeError) else "form"
    return f"a value is of another {what} than it must be ({type(error).__name__}: {error!s:.300})"


_HEAD_CHARS, _TAIL_CHARS = 1200, 600


class WordedError(Exception):
    """Base of all errors whose message says all: place, value, rule and fix.

    A notebook shows them by their message, without the way through our code; TOKMILL_DEBUG=1 shows that, too.
    """

    @property
    def _render_traceback_(self) -> Callable[[], list[str]]:
        """What returns the lines that IPython shows; missing where it is to show the traceback."""
        if os.environ.get("TOKMILL_DEBUG") or not self.says_all():
            raise AttributeError("_render_traceback_")
        return lambda: [f"{type(self).__name__}: {self}"]

    def says_all(self) -> bool:
        """Whether the message is enough for whoever reads it."""
        return True


class TokenizerError(WordedError, ValueError):
    """Base of all errors that the tokenizer package raises on purpose.

    A message shows values, and a value from a file can be as long as the file: the middle of a long
    message is left out.
    """

    def __str__(self) -> str:
        message = super().__str__()
        if len(message) <= _HEAD_CHARS + _TAIL_CHARS:
            return message
        return f"{message[:_HEAD_CHARS]} … {message[-_TAIL_CHARS:]}"


class PatternError(TokenizerError):
    """A split pattern that does not parse, or that matches nothing."""


class TrainingError(TokenizerError):
    """Counts or parameters from which the requested vocabulary cannot be trained."""


class SpecialTokenError(TokenizerError):
    """A special token where none is allowed, or one that the vocabulary does not know."""


class VocabularyError(TokenizerError):
    """A token id or a byte string outside the vocabulary."""


class FormatError(TokenizerError):
    """A tokenizer file that is missing, broken, or that the format cannot express."""


def cannot_express(format_name: str, what: str, *others: str) -> FormatError:
    """Return the error for an export that would lose something; other formats hold it, `tokmill` at least."""
    use = " or ".join(map(repr, others or ("tokmill",)))
    return FormatError(f"format={format_name!r} cannot express {what}; use format={use}")


class LawError(TokenizerError):
    """An encoding that breaks a law of its family, which no text can cause.

    Attributes:
        says: the problem.
        document: index among the documents that were encoded together.
        where: its name for people.
    """

    def __init__(self, says: str, document: int, where: str | None = None) -> None:
        super().__init__(says, document, where)
        self.says = says
        self.document = document
        self.where = f"document {document}" if where is None else where

    def __str__(self) -> str:
        return (
            f"encode: {self.where} was encoded wrongly: {self.says}; this is a fault of tokmill or of the "
            "machine's memory, not of the text, and no ids are given out: please report it with the document "
            "and the tokenizer"
        )
