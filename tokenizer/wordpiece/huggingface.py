"""WordPiece in a `tokenizer.json`: a `WordPiece` model, its decoder, and `formats.split_steps`."""

from collections.abc import Mapping
from typing import Any

from tokmill.tokenizer.components.decoders import CONTINUES
from tokmill.tokenizer.core.errors import FormatError
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.formats.models import text_of, unknown_token
from tokmill.tokenizer.formats.split_steps import (
    in_sequence,
    named,
    read_steps,
    refusal,
    steps_of,
    write_steps,
)
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.pipeline.model import Model
from tokmill.tokenizer.splitting.splitter import PreTokenizer
from tokmill.tokenizer.wordpiece.model import NAME, WordPieceModel

_PREFIX = CONTINUES.decode()


def reads(content: Mapping[str, Any]) -> bool:
    """Whether a file is of this family."""
    return bool(content["model"].get("type") == "WordPiece")


def write(definition: Definition, *, exact: bool) -> dict[str, Any]:
    """Return the pre-tokenizer, the decoder and the model."""
    model = definition.model
    if model.spec()["unknown"] != "word":
        raise FormatError(
            "format='huggingface' cannot express unknown='part': the tokenizers library takes a word that "
            "does not fit as unknown as a whole; use format='tokmill'"
        )
    return {
        "pre_tokenizer": in_sequence(write_steps(definition.pre_tokenizer.chain, exact=exact)),
        "decoder": {
            "type": "WordPiece",
            "prefix": _PREFIX,
            "cleanup": definition.decoder.name == "wordpiece_cleanup",
        },
        "model": {
            "type": "WordPiece",
            "unk_token": model.unknown_token,
            "continuing_subword_prefix": _PREFIX,
            "max_input_chars_per_word": model.spec()["max_input_chars_per_word"],
            "vocab": {text_of(token): i for i, token in enumerate(definition.tokens) if token},
        },
    }


def read(
    content: Mapping[str, Any], special_tokens: Mapping[str, int], num_reserved: int, where: str
) -> tuple[Model, PreTokenizer]:
    """Read the model and the pre-tokenizer."""
    model = content["model"]
    if model.get("continuing_subword_prefix", _PREFIX) != _PREFIX:
        raise refusal(
            where, "continuing_subword_prefix", model["continuing_subword_prefix"], "only ## can be done"
        )
    unknown = unknown_token(model, special_tokens, where)
    decoder = content.get("decoder")
    if decoder is None or decoder.get("type") != "WordPiece" or decoder.get("prefix", _PREFIX) != _PREFIX:
        raise refusal(where, "decoder", decoder, "only WordPiece can join the pieces of words")
    tokens = {i: text.encode() for text, i in model["vocab"].items() if special_tokens.get(text) != i}
    vocabulary = Vocabulary.build(tokens, special_tokens, num_reserved)
    made = WordPieceModel(vocabulary, unknown, model.get("max_input_chars_per_word", 100))
    chain = read_steps(steps_of(content.get("pre_tokenizer")), NAME, where)
    return made, PreTokenizer(named(chain))
