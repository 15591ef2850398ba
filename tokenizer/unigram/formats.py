"""Unigram models in a `tokenizer.json`, in a `.model` of SentencePiece, and in GGUF.

In a `tokenizer.json` the vocabulary is a list of pieces and scores by id, the special tokens among them.
serde_json takes a number's digits for an integer and divides it by a power of ten: both steps round, and the
last place decides between equal sums. So a score is read as they read it, and written so that they read what
we mean. Of a `.model` the text is one pre-token, since sums are rounded at every step and so depend on all
that stands before.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tokmill.tokenizer.components.sentences import SentenceNormalizer
from tokmill.tokenizer.core.errors import FormatError, VocabularyError, cannot_express
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.formats import metaspace
from tokmill.tokenizer.formats.gguf_section import Reading, Section, read_pieces
from tokmill.tokenizer.formats.metaspace import byte_name, read_byte_ids, write_joining
from tokmill.tokenizer.formats.model_file import ModelFile, PieceKind
from tokmill.tokenizer.formats.models import JsonFile
from tokmill.tokenizer.formats.normalizers import sentence_steps
from tokmill.tokenizer.formats.split_steps import (
    check_chain,
    in_sequence,
    split_steps,
)
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.pipeline.model import Model
from tokmill.tokenizer.sentences.options import WHOLE_TEXT
from tokmill.tokenizer.splitting.splitter import PreTokenizer
from tokmill.tokenizer.unigram.model import USER_DEFINED_SCORE, UnigramModel, scores_of

_MOST = 308  # the greatest power of ten
_FAR = 4  # neighbours that are tried; reading moves a number by one at most


def as_read(score: float) -> float:
    """Return what tokenizers read where a file has this score in its shortest form; NaN and ∞ stay."""
    if not math.isfinite(score):
        return score
    digits, _, exponent = repr(float(score)).lower().partition("e")
    whole, _, fraction = digits.lstrip("-").partition(".")
    power, significand = int(exponent or 0) - len(fraction), float(int(whole + fraction))
    while power < -_MOST:
        significand, power = significand / float(f"1e{_MOST}"), power + _MOST
    found = significand / float(f"1e{-power}") if power < 0 else significand * float(f"1e{power}")
    return math.copysign(found, score)


def as_written(score: float) -> float | None:
    """Return the score to write so that tokenizers read this one; None if there is none."""
    return next((found for found in _neighbours(score) if as_read(found) == score), None)


def _neighbours(score: float) -> Iterator[float]:
    """Yield a number and those around it, the nearest first."""
    below = above = score
    yield score
    for _ in range(_FAR):
        below, above = math.nextafter(below, -math.inf), math.nextafter(above, math.inf)
        yield from (below, above)


_BYTES_DECODER = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]}


def reads(content: Mapping[str, Any]) -> bool:
    """Whether a file's model is `Unigram`."""
    return bool(content["model"].get("type") == "Unigram")


def prepared(definition: Definition) -> Definition:
    """Return a tokenizer as it is; refuse one that was read from a `.model`, which no file can hold."""
    model, normalizer = definition.model, definition.normalizer
    if isinstance(normalizer, SentenceNormalizer):
        sentence_steps(normalizer)
    if isinstance(model, UnigramModel) and model.precision != "double":
        what = "precision='single': sentencepiece adds scores with 32 bits, tokenizers adds with 64"
        raise cannot_express("huggingface", what, "sentencepiece", "tokmill")
    return definition


def write(definition: Definition, *, exact: bool) -> dict[str, Any]:
    """Return the pre-tokenizer, the decoder and the model."""
    model, chain = definition.model, definition.pre_tokenizer.chain
    if not isinstance(model, UnigramModel):
        raise FormatError(f"format='huggingface' cannot write a {model.family} tokenizer as Unigram")
    scores = _as_written(model)
    pieces = [_text(token, i, model) for i, token in enumerate(definition.tokens)]
    return {
        **_around(definition, chain, exact=exact),
        "model": {
            "type": "Unigram",
            "unk_id": model.unknown_id,
            "vocab": [list(pair) for pair in zip(pieces, scores, strict=True)],
            "byte_fallback": bool(model.vocabulary.byte_ids),
        },
    }


def _around(definition: Definition, chain: tuple[str, ...], *, exact: bool) -> dict[str, Any]:
    """Return the pre-tokenizer and the decoder."""
    if chain in ((metaspace.WORDS,), (WHOLE_TEXT,)):
        return {
            "pre_tokenizer": metaspace.write(definition.normalizer, chain[0]),
            "decoder": write_joining(definition.decoder.name, definition.model),
        }
    if definition.decoder.name != "fuse":
        raise cannot_express("huggingface", f"a Unigram model with decoder={definition.decoder.name!r}")
    check_chain(chain)
    by_bytes = bool(definition.vocabulary.byte_ids)
    if by_bytes:
        _check_names_are_cut(definition)
    steps = in_sequence(split_steps(chain, exact=exact))
    return {"pre_tokenizer": steps, "decoder": _BYTES_DECODER if by_bytes else {"type": "Fuse"}}


def _check_names_are_cut(definition: Definition) -> None:
    """Refuse patterns that leave the text `<0x41>` whole, which tokenizers would take for the byte."""
    splitter, name = definition.pre_tokenizer.compile(), byte_name(0x41)
    if any(name in part for text in (name, f" {name}", f"a{name}b") for part in splitter.split_text(text)):
        what = f"bytes for unknown characters with a split pattern that leaves {name} whole"
        raise cannot_express("huggingface", f"{what}: tokenizers would take this text for the byte")


def _as_written(model: UnigramModel) -> list[float]:
    """Return scores of which tokenizers read the model's."""
    written = [as_written(score) for score in model.scores.tolist()]
    if None in written:
        i = written.index(None)
        raise FormatError(
            f"format='huggingface' cannot express the score {model.scores[i]} of id {i}: tokenizers read no "
            "number of JSON so; round it to fewer digits, or use format='tokmill'"
        )
    return [score for score in written if score is not None]


def _text(token: bytes, i: int, model: UnigramModel) -> str:
    if i in model.vocabulary.byte_ids:
        return byte_name(token[0])
    try:
        text = token.decode()
    except UnicodeDecodeError:
        text = ""
    if not text:
        what = f"the piece {token!r:.200}, which is not UTF-8" if token else f"the id {i}, which has no token"
        raise FormatError(f"format='huggingface' cannot express {what}; use format='tokmill'")
    return text


def read(file: JsonFile) -> tuple[Model, PreTokenizer]:
    """Read the model and the pre-tokenizer."""
    if not file.model.get("byte_fallback"):
        file.check_decoder("Fuse", "only Fuse can join the pieces of a Unigram model here")
    elif file.content.get("decoder") != _BYTES_DECODER:
        raise file.refusal("model.byte_fallback", True, "with a Split it needs ByteFallback and Fuse")
    return _read_model(file), file.pre_tokenizer(file.steps)


def read_marked(file: JsonFile, pattern: str) -> tuple[Model, str]:
    """Read the model of a file whose text is marked with `▁`; return the pattern that cuts it, too."""
    return _read_model(file), pattern


def _read_model(file: JsonFile) -> UnigramModel:
    pairs, unknown = file.model["vocab"], _unknown(file)
    byte_ids = read_byte_ids({text: i for i, (text, _) in enumerate(pairs)}, file.model, file.where)
    tokens: dict[int, bytes] = {}
    for i, (piece, _) in enumerate(pairs):
        if file.specials.get(piece, i) != i:
            raise VocabularyError(
                f"{file.where}: the piece {piece!r:.80} has the id {i}, but is added with another"
            )
        if piece not in file.specials:
            tokens[i] = byte_ids.get(i, piece.encode())
    vocabulary = file.build(tokens, byte_ids)
    scores = [score for _, score in pairs] + [0.0] * (vocabulary.size - len(pairs))
    return UnigramModel(vocabulary, np.array([*map(as_read, scores_of(scores).tolist())]), unknown)


def _unknown(file: JsonFile) -> str:
    """Return the name of the unknown token."""
    unk_id, size = file.model.get("unk_id"), len(file.model["vocab"])
    if type(unk_id) is not int or not 0 <= unk_id < size:
        raise file.refusal("model.unk_id", unk_id, f"it must be the id of the unknown token, below {size}")
    unknown: str = file.model["vocab"][unk_id][0]
    if file.specials.get(unknown) != unk_id:
        raise file.refusal("model.unk_id", unk_id, f"its token {unknown!r:.80} must be an added token, too")
    return unknown


GGUF_MODEL = "t5"


def read_section(section: Section) -> Reading:
    """Read the vocabulary."""
    return read_pieces(section, MODEL_TYPE, {"eos": 1, "unk": 2, "pad": 0}, {"bos": False, "eos": True})


MODEL_TYPE = 1


def model_of(file: ModelFile, vocabulary: Vocabulary, unknown: str) -> Model:
    """Return the model of a file."""
    scores = np.array([piece.score for piece in file.pieces], np.float64)
    for i, piece in enumerate(file.pieces):
        if piece.kind != PieceKind.NORMAL:
            scores[i] = USER_DEFINED_SCORE if piece.kind == PieceKind.USER_DEFINED else 0.0
    return UnigramModel(vocabulary, scores, unknown, "single")


def pattern_of(_model: Model) -> str:
    """Return how text is cut before the model: not at all."""
    return WHOLE_TEXT


def can_hold(model: Model) -> bool:
    """Whether sentencepiece would encode with a model as we do."""
    return isinstance(model, UnigramModel) and model.precision == "single"
