"""Read data that others wrote: a missing or malformed value becomes an error that names the place."""

from collections.abc import Iterator
from contextlib import contextmanager

from tokmill.tokenizer.core.errors import FormatError, TokenizerError


@contextmanager
def refuse_malformed(where: str) -> Iterator[None]:
    """Turn the errors of parsing data into a `FormatError`.

    Args:
        where: the file, or another name of the data; the message begins with it.

    Raises:
        FormatError: a key was missing, or a value of another type or form.
    """
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
        return f"it is no UTF-8 at byte {error.start}"
    what = "type" if isinstance(error, TypeError | AttributeError) else "form"
    return f"a value is of another {what} than it must be ({type(error).__name__}: {error!s:.300})"
