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
        raise FormatError(
            f"{where}: broken: {type(error).__name__}: {error!s:.300}; save the tokenizer again"
        ) from error
