"""BPE over characters in a `tokenizer.json` whose tokens hold `▁`, in a `.model` of SentencePiece, in GGUF.

In a `tokenizer.json` the pre-tokenizer is `Metaspace`, or there is none: then text is cut before every run of
`▁` if no piece lies across (`pattern_of`). Merges that would make a special token, or go on from one, are
left out. SentencePiece's models join any two pieces that make a piece; they are written with a list of
merges, where the rank of a pair decides, not the place. That matters where places overlap: x y z with x y = y
z, a piece that repeats itself, such as `====`. So models are compared on runs of such strings, alone and
between their neighbours in other pieces, and one whose ids differ is refused.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.char_bpe.model import NAME, CharacterPairModel
from tokmill.tokenizer.components.decoders import Decoder
from tokmill.tokenizer.components.normalizers import Normalizer
from tokmill.tokenizer.components.sentences import SentenceNormalizer
from tokmill.tokenizer.components.steps import MARK
from tokmill.tokenizer.core.buffers import pack_bytes
from tokmill.tokenizer.core.errors import FormatError, cannot_express
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.formats import metaspace
from tokmill.tokenizer.formats.gguf_section import Reading, Section, read_pieces
from tokmill.tokenizer.formats.metaspace import byte_name, read_byte_ids, write_joining
from tokmill.tokenizer.formats.model_file import ModelFile, PieceKind
from tokmill.tokenizer.formats.models import JsonFile, bpe_model
from tokmill.tokenizer.formats.normalizers import sentence_steps
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.pipeline.model import Model
from tokmill.tokenizer.sentences.options import WHOLE_TEXT
from tokmill.tokenizer.splitting import Pretokens
from tokmill.tokenizer.splitting.splitter import PreTokenizer

_MOST_NEIGHBOURS = 40
_MORE = 12  # repetitions beyond twice those of the longest piece


def with_merges(model: CharacterPairModel) -> CharacterPairModel:
    """Return the model with a list of merges that gives the same ids."""
    pieces = {
        token.decode(): i for i, token in model.vocabulary.ordinary() if i not in model.vocabulary.byte_ids
    }
    _check_pieces(model, pieces)
    found = [
        (pieces[left], pieces[right])
        for group in _groups(model, pieces)
        for left, right in _pairs(group)
        if left in pieces and right in pieces
    ]
    listed = np.array(found, np.int32).reshape(-1, 2)
    made = replace(model, scores=np.zeros_like(model.scores), merges=listed)
    _compare(model, made, pieces)
    return made


def _check_pieces(model: CharacterPairModel, pieces: Mapping[str, int]) -> None:
    for group in _groups(model, pieces):
        if len(set(map(_base, group))) > 1:
            names = f"{group[0]!r:.80} and {group[1]!r:.80}"
            raise _refusal(f"{names} have one score, and the leftmost of them is made first")
    lone = next((letter for piece in pieces for letter in piece if letter not in pieces), None)
    if lone is not None:
        raise _refusal(f"the character {lone!r} is in pieces, but is not a piece itself")


def _groups(model: CharacterPairModel, pieces: Mapping[str, int]) -> list[list[str]]:
    """Return the pieces that are joined, those of one score together, the greatest score first."""
    found = defaultdict[float, list[str]](list)
    for piece, i in pieces.items():
        if len(piece) > 1:
            found[float(model.scores[i])].append(piece)
    return [found[score] for score in sorted(found, reverse=True)]


def _pairs(group: list[str]) -> list[tuple[str, str]]:
    """Return the ways to cut pieces of one score in two, in the order of their merges.

    Of powers of one string the longest beginning goes first, so that a run grows from its beginning.
    """
    if len(group) == 1:
        return [(group[0][:cut], group[0][cut:]) for cut in _places(group[0])]
    cut = [(piece[:end], piece[end:]) for piece in group for end in range(1, len(piece))]
    return sorted(cut, key=lambda pair: (-len(pair[0]), -len(pair[1])))


def _refusal(reason: str) -> FormatError:
    what = f"these pieces as a list of merges: {reason}"
    return cannot_express("huggingface", what, "sentencepiece", "tokmill")


def _places(piece: str) -> list[int]:
    """Return where a piece is cut in two, in the order of its merges: the longest beginning first.

    The cut after k characters goes before the one after n - k if the piece begins as it ends for n - k
    characters, unless it does so for k, too.
    """
    number = len(piece)
    first = [
        cut
        for cut in range(1, (number + 1) // 2)
        if piece[cut:] == piece[: number - cut] and piece[number - cut :] != piece[:cut]
    ]
    return [*first, *(cut for cut in range(number - 1, 0, -1) if cut not in first)]


def _compare(model: CharacterPairModel, made: CharacterPairModel, pieces: Mapping[str, int]) -> None:
    """Compare the ids of two models on runs of strings whose powers are pieces."""
    texts = sorted(set(_runs(pieces)))
    data, offsets = pack_bytes([text.encode() for text in texts])
    given = data, Pretokens(offsets[:-1], offsets[1:], np.arange(len(texts) + 1)), np.full(len(texts), -1)
    with model.encoder().workspace() as one, made.encoder().workspace() as other:
        first, second = one.encode(*given), other.encode(*given)
    for i, text in enumerate(texts):
        ids = [found.ids[found.ends[i] : found.ends[i + 1]].tolist() for found in (first, second)]
        if ids[0] != ids[1]:
            raise _refusal(f"{text!r:.200} would be cut in another way")


def _runs(pieces: Mapping[str, int]) -> Iterator[str]:
    powers = defaultdict[str, int](int)
    for piece in pieces:
        base = _base(piece)
        powers[base] = max(powers[base], len(piece) // len(base))
    for base in [base for base, power in powers.items() if power > 2]:
        before, after = _neighbours(base, pieces)
        for number in range(1, 2 * powers[base] + _MORE):
            run = base * number
            yield run
            yield from (left + run for left in before)
            yield from (run + right for right in after)
            yield from (left + run + right for left in before[:4] for right in after[:4])


def _base(piece: str) -> str:
    """Return the shortest string of which a piece is a power."""
    return piece[: (piece + piece).find(piece, 1)]


def _neighbours(base: str, pieces: Mapping[str, int]) -> tuple[list[str], list[str]]:
    """Return characters that stand before a string in pieces, and after it."""
    before = {piece[piece.find(base) - 1] for piece in pieces if piece.find(base) > 0}
    ends = ((piece, piece.rfind(base) + len(base)) for piece in pieces if base in piece)
    after = {piece[end] for piece, end in ends if end < len(piece)}
    kept = [sorted(found - {base}, key=lambda letter: pieces.get(letter, 0)) for found in (before, after)]
    return kept[0][:_MOST_NEIGHBOURS], kept[1][:_MOST_NEIGHBOURS]


def reads(content: Mapping[str, Any]) -> bool:
    """Whether a file is of this family: BPE over text that is not cut, or before every `▁`."""
    model = content["model"]
    is_pairs = bool(model.get("type", "BPE") == "BPE") and not model.get("end_of_word_suffix")
    return is_pairs and metaspace.has(content.get("pre_tokenizer"))


def read_marked(file: JsonFile, pattern: str) -> tuple[Model, str]:
    """Read the model of a file; return the pattern that cuts its text, too."""
    file.check_bpe(NAME, end_of_word_suffix=(None, ""))
    unknown = file.unknown()
    byte_ids = read_byte_ids(file.model["vocab"], file.model, file.where)
    vocabulary = file.vocabulary(byte_ids=byte_ids)
    fuse = bool(file.model.get("fuse_unk", False)) or bool(byte_ids)
    made = CharacterPairModel(vocabulary, np.zeros(vocabulary.size), unknown, (), _read_merges(file), fuse)
    return made, _cuts(made) if pattern == WHOLE_TEXT else pattern


def _read_merges(file: JsonFile) -> NDArray[np.int32]:
    ids, found = file.model["vocab"], list[tuple[int, int]]()
    for rank, (left, right) in enumerate(file.merges()):
        if left not in ids or right not in ids or left + right not in ids:
            rule = f"{left!r:.80}, {right!r:.80} and {left + right!r:.80} must be in the vocabulary"
            raise file.refusal(f"model.merges[{rank}]", file.model["merges"][rank], rule)
        if not file.specials.keys() & {left, right, left + right}:
            found.append((ids[left], ids[right]))
    return np.array(found, np.int32).reshape(-1, 2)


def _cuts(model: CharacterPairModel) -> str:
    """Return how text may be cut before merging: at `▁`, if it is a piece, so that it is never unknown."""
    return pattern_of(model) if MARK.encode() in model.vocabulary.ids else WHOLE_TEXT


def prepared(definition: Definition) -> Definition:
    """Return a tokenizer with the same ids that a file can hold, for one that was read from a `.model`.

    White space is treated by replacements, and pieces are joined by a list of merges (`merge_list`).
    """
    model, normalizer = definition.model, definition.normalizer
    if not isinstance(model, CharacterPairModel) or model.merges is not None:
        return definition
    if not isinstance(normalizer, SentenceNormalizer) or definition.pre_tokenizer.chain != (
        pattern_of(model),
    ):
        what = "BPE that joins any two pieces that make a piece, but for SentencePiece's models"
        raise cannot_express("huggingface", what)
    name = sentence_steps(normalizer)
    made = with_merges(model)
    decoder = Decoder("metaspace_fused" if normalizer.add_dummy_prefix else "metaspace_never")
    return replace(
        definition,
        model=made,
        pre_tokenizer=PreTokenizer(_cuts(made)),
        normalizer=Normalizer(name),
        decoder=decoder,
    )


def write(definition: Definition, *, exact: bool) -> dict[str, Any]:
    """Return the pre-tokenizer, the decoder and the model."""
    model, chain = definition.model, definition.pre_tokenizer.chain
    if not isinstance(model, CharacterPairModel) or model.pairs is None:
        raise cannot_express("huggingface", "BPE without a list of merges")
    if chain not in ((metaspace.WORDS,), (_cuts(model),)) or model.frozen:
        raise cannot_express("huggingface", f"split_pattern={chain!r:.200} for this model")
    return {
        "pre_tokenizer": metaspace.write(definition.normalizer, chain[0]),
        "decoder": write_joining(definition.decoder.name, model),
        "model": bpe_model(
            _vocab(model),
            [[left.decode(), right.decode()] for left, right in model.pairs],
            unk_token=model.unknown_token,
            fuse_unk=model.fuse_unknown,
            byte_fallback=bool(model.vocabulary.byte_ids),
        ),
    }


def _vocab(model: CharacterPairModel) -> dict[str, int]:
    byte_ids = model.vocabulary.byte_ids
    tokens = [(i, token) for i, token in enumerate(model.vocabulary.tokens) if token]
    return {byte_name(token[0]) if i in byte_ids else token.decode(): i for i, token in tokens}


GGUF_MODEL = "llama"


def read_section(section: Section) -> Reading:
    """Read the vocabulary."""
    for name in ("precompiled_charsmap", "remove_extra_whitespaces"):
        value = section.metadata.get(f"tokenizer.ggml.{name}", False)
        if value is not False and len(getattr(value, "shape", (1,))):
            raise section.trouble(
                f"tokenizer.ggml.{name} is set, which llama.cpp passes over for {GGUF_MODEL!r} models"
            )
    return read_pieces(section, MODEL_TYPE, {"bos": 1, "eos": 2, "unk": 0}, {"bos": True, "eos": False})


MODEL_TYPE = 2
WORDS, WORDS_AND_BLANKS = "▁*[^▁]+|▁+", "[^▁]+▁*|▁+"


def model_of(file: ModelFile, vocabulary: Vocabulary, unknown: str) -> Model:
    """Return the model of a file."""
    kinds = [piece.kind for piece in file.pieces]
    scores = np.array([piece.score for piece in file.pieces], np.float64)
    scores[[kind != PieceKind.NORMAL for kind in kinds]] = 0.0
    frozen = tuple(i for i, kind in enumerate(kinds) if kind == PieceKind.USER_DEFINED)
    return CharacterPairModel(vocabulary, scores, unknown, frozen)


def pattern_of(model: Model) -> str:
    """Return how text is cut before the model: into words, if no piece lies across two of them.

    A word has the `▁` before it, or those after it.
    """
    vocabulary = model.vocabulary
    pieces = [token.decode() for i, token in vocabulary.ordinary() if i not in vocabulary.byte_ids]
    if not any("▁" in piece.lstrip("▁") for piece in pieces):
        return WORDS
    return WHOLE_TEXT if any("▁" in piece.rstrip("▁") for piece in pieces) else WORDS_AND_BLANKS


def can_hold(model: Model) -> bool:
    """Whether sentencepiece would encode with a model as we do."""
    return isinstance(model, CharacterPairModel) and model.merges is None
