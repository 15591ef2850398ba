r"""Longest match: the vocabulary is the pieces that merging the most frequent pairs of bytes makes.

Laws: pieces and ids are those of byte-level BPE from the same counts, since only encoding differs: at each
place the longest token is taken. No piece has a special token's bytes.

RWKV's text vocabulary: a line for each token, with its id, a literal of Python, and its number of bytes.

    257 '\t\t' 2
    128 b'\x80' 1

A literal is a text, which is taken as UTF-8, or bytes. It is parsed here and never evaluated. The file has no
special tokens (RWKV takes id 0, which has no line, for the end of a text), and text is not cut. A sidecar
says otherwise for other tokenizers of this family. In GGUF, tokens are the inside of literals of bytes.
Sources: BlinkDL/ChatRWKV `rwkv_tokenizer.py`; ggml-org/llama.cpp, `conversion/rwkv.py`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.core.errors import FormatError, TrainingError, refuse_malformed
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.core.text import split_lines
from tokmill.tokenizer.core.token_tables import lay_out_trie
from tokmill.tokenizer.core.vocabulary import MAX_IDS, Vocabulary, count_reserved
from tokmill.tokenizer.formats import sidecar
from tokmill.tokenizer.formats.files import RWKV, read_file, write_file
from tokmill.tokenizer.formats.gguf_section import Reading, Section
from tokmill.tokenizer.formats.model_file import PieceKind
from tokmill.tokenizer.formats.sidecar import Usage
from tokmill.tokenizer.kernels.tries import encode_longest
from tokmill.tokenizer.merging.rules import MergeRules
from tokmill.tokenizer.merging.trainer import BpeTrainer
from tokmill.tokenizer.pipeline.base_model import SPECIAL, BaseModel, PrefixTraining, check_bytes, check_size
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.pipeline.encoder import TilingEncoder
from tokmill.tokenizer.pipeline.families import Family
from tokmill.tokenizer.pipeline.model import Progress
from tokmill.tokenizer.pipeline.options import ModelOptions
from tokmill.tokenizer.sentences.options import WHOLE_TEXT

NAME = "longest_match"


@dataclass(frozen=True, eq=False)
class LongestMatchModel(BaseModel):
    """A vocabulary of which the longest token is taken.

    Attributes:
        vocabulary: the bytes of every id.

    Raises:
        VocabularyError: a byte is not a token, or there are too many ids.
    """

    family = NAME

    def __post_init__(self) -> None:
        check_size(self.vocabulary)
        check_bytes(self.byte_ids, "longest match needs them all")

    @classmethod
    def from_spec(cls, vocabulary: Vocabulary, _spec: Mapping[str, Any]) -> Self:
        """Build a model from a vocabulary; there is nothing else."""
        return cls(vocabulary)

    @cached_property
    def byte_ids(self) -> NDArray[np.int32]:
        """int32, shape (256,): the id of each byte, or -1."""
        ids = np.full(256, -1, np.int32)
        for i, token in self.vocabulary.ordinary():
            if len(token) == 1:
                ids[token[0]] = i
        return ids

    def spec(self) -> dict[str, Any]:
        """Return nothing: everything is in the vocabulary."""
        return {}

    def encoder(self) -> TilingEncoder:
        """Make an encoder."""
        data, offsets = self.vocabulary.data, self.vocabulary.offsets
        longer = np.array([i for i, token in self.vocabulary.ordinary() if len(token) > 1], np.int64)
        trie, _ = lay_out_trie(data, offsets, longer, self.byte_ids)
        return TilingEncoder(encode_longest, trie, offsets)


class LongestMatchTraining(PrefixTraining):
    """Learns pieces as byte-level BPE does."""

    def __init__(self, counts: PretokenCounts, options: ModelOptions, vocab_sizes: Sequence[int]) -> None:
        check_options(options)
        super().__init__(options, vocab_sizes, {SPECIAL: len(options.names)}, always=256)
        self._counts = counts

    def learn(self, number: int, progress: Progress | None) -> int:
        """Learn pieces; return how many there are."""
        trainer = BpeTrainer(self._counts, MergeRules.of(self.options, self.options.names), number - 256)
        trainer.learn(number, progress)
        self._pieces = trainer.pieces
        return len(self._pieces) if len(self._counts) else 0

    def model(self, number: int) -> LongestMatchModel:
        """Make the model of the first pieces."""
        pieces, names = self._pieces[:number], self.options.names
        specials = {name: len(pieces) + i for i, name in enumerate(names)}
        return LongestMatchModel(
            Vocabulary.build(dict(enumerate(pieces)), specials, self.options.num_reserved)
        )


def check_options(options: ModelOptions) -> None:
    """Refuse bytes for unknown characters: every byte is a token anyway."""
    if options.byte_fallback:
        raise TrainingError(
            "train: byte_fallback=True is for char_bpe and unigram; longest_match has every byte anyway"
        )


def least_vocab_size(special_tokens: Sequence[str], num_reserved: int) -> int:
    """Return the size of a vocabulary of all bytes, the special and reserved tokens, and one piece."""
    return 256 + len(special_tokens) + num_reserved + 1


FAMILY = Family(
    NAME,
    "Longest match",
    "pieces",
    LongestMatchModel.from_spec,
    LongestMatchTraining,
    least_vocab_size,
    dict.fromkeys(("rwkv", "gguf"), "tokmill.tokenizer.longest_match.family"),
    check_options=check_options,
)


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
