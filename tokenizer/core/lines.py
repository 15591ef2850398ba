r"""Lines of text files: `\n` and `\r\n` end a line, and nothing else does.

U+0085, U+2028, U+2029, a form feed or a `\r` within a line are text, which `str.splitlines` and files opened
as text take for line ends. A byte order mark at the start is not text.
"""

from typing import Literal

BOM = b"\xef\xbb\xbf"


def split_lines(data: bytes, errors: Literal["strict", "replace"] = "strict") -> list[str]:
    """Return the lines of UTF-8, without their ends; none of an empty file.

    Raises:
        UnicodeDecodeError: `data` is not UTF-8, and `errors` is "strict".
    """
    text = data.removeprefix(BOM).decode("utf-8", errors).replace("\r\n", "\n")
    return text.removesuffix("\n").split("\n") if text else []
