r"""RWKV's text vocabulary: a line for each token, with its id, a literal of Python, and its number of bytes.

    257 '\t\t' 2
    128 b'\x80' 1

A literal is a text, which is taken as UTF-8, or bytes. It is parsed here and never evaluated. The file has no
special tokens (RWKV takes id 0, which has no line, for the end of a text), and text is not cut. A sidecar
says otherwise for other tokenizers of this family. In GGUF, tokens are the inside of literals of bytes.
Sources: BlinkDL/ChatRWKV `rwkv_tokenizer.py`; ggml-org/llama.cpp, `conversion/rwkv.py`.
"""

import re
from pathlib import Path

from tokmill.tokenizer.core.errors import FormatError, refuse_malformed
from tokmill.tokenizer.core.text import split_lines
from tokmill.tokenizer.core.vocabulary import MAX_IDS, Vocabulary, count_reserved
from tokmill.tokenizer.formats import sidecar
from tokmill.tokenizer.formats.files import RWKV, read_file, write_file
from tokmill.tokenizer.formats.gguf_section import Reading, Section
from tokmill.tokenizer.formats.model_file import PieceKind
from tokmill.tokenizer.formats.sidecar import Usage
from tokmill.tokenizer.longest_match.family import LongestMatchModel
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.sentences.options import WHOLE_TEXT

GGUF_MODEL = "rwkv"


def read_section(section: Section) -> Reading:
    """Read the vocabulary; all tokens but normal ones are special."""
    normal = [kind == PieceKind.NORMAL for kind in section.kinds]
    tokens = {
        i: literal_bytes(text, is_bytes=True, where=f"{section.where}: tokens[{i}]")
        for i, text in enumerate(section.tokens)
        if normal[i]
    }
    names = {text: i for i, text in enumerate(section.tokens) if not normal[i]}
    model = LongestMatchModel(Vocabulary.build(tokens, names, count_reserved(names)))
    before, after = (
        ["bos"] * section.adds("bos", default=False),
        ["eos"] * section.adds("eos", default=False),
    )
    return Reading(Definition.compose(model, split_pattern=WHOLE_TEXT), {}, before, after)


_LINE = re.compile(r"([0-9]{1,7}) (b?)('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\") ([0-9]{1,7})")
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_NAMED = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", "'": "'", '"': '"'}
_WRITTEN = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}
_SIDECAR_SUFFIX = ".sidecar.json"
_UNSEEN = re.compile("[\x00-\x1f\x7f-\xa0\xad\u2028\u2029\\\\]")


def read(path: Path, usage: Usage) -> Definition:
    """Read a file."""
    usage = usage.over(Usage.read(path.with_name(path.name + _SIDECAR_SUFFIX)))
    tokens = _tokens(path)
    with refuse_malformed(str(path)):
        vocabulary = Vocabulary.build(tokens, usage.special_ids(path), usage.num_reserved or 0)
        return Definition.compose(
            LongestMatchModel(vocabulary),
            **usage.parts(WHOLE_TEXT),
        )


def _tokens(path: Path) -> dict[int, bytes]:
    try:
        lines = split_lines(read_file(path))
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}: is not UTF-8 at byte {error.start}; is it the right file?") from error
    tokens: dict[int, bytes] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        token, text = _read_line(line, f"{path}: line {number}")
        if token in tokens or token >= MAX_IDS:
            raise FormatError(
                f"{path}: line {number}: id {token} must be from 0 to {MAX_IDS - 1}, and stand there once"
            )
        tokens[token] = text
    return tokens


def _read_line(line: str, where: str) -> tuple[int, bytes]:
    found = _LINE.fullmatch(line)
    if found is None:
        raise FormatError(f"{where}: {line[:80]!r} must be an id, a literal, and its number of bytes")
    token, is_bytes, literal, size = found.groups()
    text = literal_bytes(literal[1:-1], is_bytes=bool(is_bytes), where=where)
    if len(text) != int(size):
        raise FormatError(f"{where}: {literal:.80} has {len(text)} bytes, but the line says {size}")
    return int(token), text


def literal_bytes(body: str, *, is_bytes: bool, where: str) -> bytes:
    """Return what the inside of a literal stands for."""

    def unescaped(found: re.Match[str]) -> str:
        short, four, eight, named = found.groups()
        if named is not None or (is_bytes and short is None):
            if named not in _NAMED:
                raise FormatError(f"{where}: the escape {found[0]:.80} is not known")
            return _NAMED[named]
        return chr(int(short or four or eight, 16))

    if is_bytes and not body.isascii():
        raise FormatError(
            f"{where}: {body!r:.80} holds a character that is not a byte; write it as \\x and two digits"
        )
    try:
        return _ESCAPE.sub(unescaped, body).encode("latin-1" if is_bytes else "utf-8")
    except FormatError:
        raise
    except (ValueError, OverflowError) as error:
        raise FormatError(f"{where}: {body!r:.80} stands for no text: {error!s:.80}") from error


def write(definition: Definition, folder: Path) -> list[Path]:
    """Write the file and its sidecar into a folder."""
    lines = [_line(i, token) for i, token in definition.vocabulary.ordinary()]
    return [
        write_file(folder / RWKV, "".join(lines).encode()),
        sidecar.write(definition, folder / f"{RWKV}{_SIDECAR_SUFFIX}", ignore_merges=False),
    ]


def _line(token: int, text: bytes) -> str:
    try:
        return f"{token} {_literal(text.decode())} {len(text)}\n"
    except UnicodeDecodeError:
        return f"{token} b{_literal(text.decode('latin-1'), ascii_alone=True)} {len(text)}\n"


def _literal(text: str, *, ascii_alone: bool = False) -> str:
    """Return a literal; in double quotes if only single ones are in the text, as Python writes it."""
    quote = '"' if "'" in text and '"' not in text else "'"
    body = _UNSEEN.sub(lambda found: _escape(found[0]), text)
    if ascii_alone:
        body = re.sub("[\x80-\xff]", lambda found: _escape(found[0]), body)
    return quote + body.replace(quote, f"\\{quote}") + quote


def _escape(character: str) -> str:
    code = ord(character)
    return _WRITTEN.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
