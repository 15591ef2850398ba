"""The tables of rules inside SentencePiece's models: compiled, taken apart, and read from its TSV.

A rule puts a text in the place of a string; at each place of a text the longest rule applies. A compiled
table is the size of a double array, the array (`double_array`), and the texts, each once, in order of their
code points, with a zero byte after it.

Law: compiled rules are, byte for byte, what sentencepiece's trainer makes of the same rules.
"""

from collections.abc import Mapping
from pathlib import Path

from tokmill.tokenizer.components.double_array import build
from tokmill.tokenizer.core.errors import FormatError, TokenizerError
from tokmill.tokenizer.core.lines import split_lines

MAX_SOURCE_CHARS = 64
_MAX_NESTED = 32  # rules that begin with one another, as sentencepiece has it


def compile_rules(rules: Mapping[str, str]) -> bytes:
    """Return the compiled table of rules; empty for none.

    Args:
        rules: a text for each string.

    Raises:
        TokenizerError: a string is empty, too long, becomes itself, or begins with 31 others that have rules;
            or a rule has a zero character or is no text.
    """
    _check(rules)
    if not rules:
        return b""
    places, texts = dict[str, int](), bytearray()
    for text in sorted(set(rules.values())):
        places[text] = len(texts)
        texts += text.encode() + b"\0"
    pairs = sorted((source.encode(), places[text]) for source, text in rules.items())
    units = build([key for key, _ in pairs], [place for _, place in pairs]).astype("<u4").tobytes()
    return len(units).to_bytes(4, "little") + units + bytes(texts)


def _check(rules: Mapping[str, str]) -> None:
    for source, text in rules.items():
        if not isinstance(source, str) or not isinstance(text, str) or not _is_text(source + text):
            raise TokenizerError(f"normalization_rules: {source!r:.200} → {text!r:.200} must be two texts")
        if source == text:
            raise TokenizerError(f"normalization_rules: {source!r:.200} becomes itself; leave it out")
        if not 0 < len(source) <= MAX_SOURCE_CHARS:
            raise TokenizerError(
                f"normalization_rules: {source!r:.200} has {len(source)} characters; a rule is for 1 to "
                f"{MAX_SOURCE_CHARS}"
            )
        if sum(source[:length] in rules for length in range(1, len(source) + 1)) >= _MAX_NESTED:
            raise TokenizerError(
                f"normalization_rules: {source!r:.200} begins with {_MAX_NESTED} or more strings that have "
                "rules, too, which is too many for sentencepiece"
            )


def _is_text(text: str) -> bool:
    return not any(character == "\0" or "\ud800" <= character <= "\udfff" for character in text)


def read_rules(path: Path) -> dict[str, str]:
    """Read SentencePiece's TSV: on each line the code points of a string, a tab, and those of its text.

    Code points are hexadecimal with spaces between them; without a text the string is removed; what follows
    another tab is a comment.

    Raises:
        FormatError: the file cannot be read, or a line is not of this form.
    """
    rules = dict[str, str]()
    try:
        lines = split_lines(path.read_bytes())
    except (OSError, UnicodeDecodeError) as error:
        raise FormatError(f"{path}: no readable table of rules: {error}") from error
    for number, line in enumerate(lines, start=1):
        if line.strip():
            source, text = [*line.split("\t"), ""][:2]
            rules[_characters(source, path, number)] = _characters(text, path, number)
    return rules


def _characters(codes: str, path: Path, number: int) -> str:
    try:
        return "".join(chr(int(code.removeprefix("U+"), 16)) for code in codes.split())
    except (ValueError, OverflowError):
        raise FormatError(
            f"{path}, line {number}: {codes!r:.80} must be hexadecimal code points, such as 'FB01' or '66 69'"
        ) from None
