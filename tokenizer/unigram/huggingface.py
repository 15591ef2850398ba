"""Unigram tokenizers in a `tokenizer.json`: a `Unigram` model, `Split` steps and the decoder `Fuse`.

The vocabulary is a list of pieces and scores by id, the special tokens among them; an added token after its
end has the score 0 here, and is in the list when it is written. Pieces that are not UTF-8, and ids without a
token, cannot be written.
"""

from collections.abc import Mapping
from typing import Any

from tokmill.tokenizer.components.pre_tokenizers import PreTokenizer
from tokmill.tokenizer.core.errors import FormatError, VocabularyError
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.formats.spellings import split_steps
from tokmill.tokenizer.formats.split_steps import (
    check_chain,
    in_sequence,
    named,
    read_split,
    refusal,
    steps_of,
)
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.pipeline.model import Model
from tokmill.tokenizer.unigram.model import UnigramModel, scores_of

_STEPS = ""


def reads(content: Mapping[str, Any]) -> bool:
    """Whether a file's model is `Unigram`."""
    return bool(content["model"].get("type") == "Unigram")


def write(definition: Definition, *, exact: bool) -> dict[str, Any]:
    """Return the pre-tokenizer, the decoder and the model.

    Args:
        definition: the tokenizer.
        exact: see `formats.huggingface.write`.

    Raises:
        FormatError: `tokenizers` would read the split pattern differently, a piece is not UTF-8, or an id has
            no token.
    """
    model, chain = definition.model, definition.pre_tokenizer.chain
    if not isinstance(model, UnigramModel):
        raise FormatError(f"format='huggingface' cannot write a {model.family} tokenizer as Unigram")
    if definition.decoder.name != "fuse":
        raise FormatError(
            f"format='huggingface' cannot express a Unigram model with decoder={definition.decoder.name!r}; "
            "use format='tokmill'"
        )
    check_chain(chain)
    pieces = [_text(token, i) for i, token in enumerate(definition.tokens)]
    return {
        "pre_tokenizer": in_sequence(split_steps(chain, exact=exact)),
        "decoder": {"type": "Fuse"},
        "model": {
            "type": "Unigram",
            "unk_id": model.unknown_id,
            "vocab": [list(pair) for pair in zip(pieces, model.scores.tolist(), strict=True)],
            "byte_fallback": False,
        },
    }


def _text(token: bytes, i: int) -> str:
    try:
        text = token.decode()
    except UnicodeDecodeError:
        text = ""
    if not text:
        what = f"the piece {token!r:.200}, which is no UTF-8" if token else f"the id {i}, which has no token"
        raise FormatError(f"format='huggingface' cannot express {what}; use format='tokmill'")
    return text


def read(
    content: Mapping[str, Any], special_tokens: Mapping[str, int], num_reserved: int, where: str
) -> tuple[Model, PreTokenizer]:
    """Read the model and the pre-tokenizer.

    Args:
        content: the file's JSON.
        special_tokens: its added tokens.
        num_reserved: number of reserved ones among them.
        where: the file's path, for messages.

    Raises:
        FormatError: it has a feature that is not supported.
        VocabularyError: the vocabulary breaks a law.
    """
    _check(content, where)
    pairs, unk_id = content["model"]["vocab"], content["model"]["unk_id"]
    unknown = pairs[unk_id][0]
    if special_tokens.get(unknown) != unk_id:
        raise refusal(where, "model.unk_id", unk_id, f"its token {unknown!r:.80} must be an added token, too")
    tokens: dict[int, bytes] = {}
    for i, (piece, _) in enumerate(pairs):
        if special_tokens.get(piece, i) != i:
            raise VocabularyError(
                f"{where}: the piece {piece!r:.80} has the id {i}, but is added with another"
            )
        if piece not in special_tokens:
            tokens[i] = piece.encode()
    vocabulary = Vocabulary.build(tokens, special_tokens, num_reserved)
    scores = [score for _, score in pairs] + [0.0] * (vocabulary.size - len(pairs))
    chain = tuple(read_split(step, where, _STEPS) for step in steps_of(content["pre_tokenizer"]))
    return UnigramModel(vocabulary, scores_of(scores), unknown), PreTokenizer(named(chain))


def _check(content: Mapping[str, Any], where: str) -> None:
    """Refuse what cannot be represented."""
    model, decoder = content["model"], content.get("decoder")
    if model.get("byte_fallback"):
        raise refusal(where, "model.byte_fallback", True, "unknown characters cannot become bytes here")
    unk_id, size = model.get("unk_id"), len(model["vocab"])
    if type(unk_id) is not int or not 0 <= unk_id < size:
        raise refusal(where, "model.unk_id", unk_id, f"it must be the id of the unknown token, below {size}")
    if not steps_of(content.get("pre_tokenizer")):
        raise refusal(where, "pre_tokenizer", None, "a Unigram model needs a Split before it")
    for step in steps_of(content["pre_tokenizer"]):
        read_split(step, where, _STEPS)
    if decoder is None or decoder.get("type") != "Fuse":
        raise refusal(where, "decoder", decoder, "only Fuse can join the pieces of a Unigram model here")
