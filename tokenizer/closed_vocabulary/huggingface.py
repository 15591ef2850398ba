"""Closed vocabularies in a `tokenizer.json`: a `WordLevel` model, `Split` steps and the decoder `Fuse`.

A last step that isolates every character makes a word-level tokenizer character-level.
Tokens that are not UTF-8 cannot be written. A family's own module binds these functions to the family.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tokmill.tokenizer.core.vocabulary import Vocabulary, texts_by_id
from tokmill.tokenizer.formats.models import text_of, unknown_token
from tokmill.tokenizer.formats.split_steps import (
    check_chain,
    in_sequence,
    named,
    read_split,
    refusal,
    split_steps,
    steps_of,
)
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.pipeline.model import Model
from tokmill.tokenizer.splitting.splitter import PreTokenizer

EVERY_CHARACTER = r"[\s\S]"
_STEPS = ""

Json = dict[str, Any]


def ends_in_characters(content: Mapping[str, Any]) -> bool:
    """Whether a file cuts pre-tokens into characters: by its last step, after at least one other."""
    steps = steps_of(content.get("pre_tokenizer"))
    last = steps[-1] if len(steps) > 1 else {}
    return last.get("pattern") == {"Regex": EVERY_CHARACTER} and last.get("behavior") == "Isolated"


def is_word_level(content: Mapping[str, Any]) -> bool:
    """Whether a file's model is `WordLevel`."""
    return bool(content["model"].get("type") == "WordLevel")


def write(definition: Definition, *, exact: bool, last: Sequence[str] = ()) -> dict[str, Any]:
    """Return the pre-tokenizer, the decoder and the model."""
    chain = definition.pre_tokenizer.chain
    check_chain(chain)
    steps = split_steps((*chain, *last), exact=exact)
    return {
        "pre_tokenizer": in_sequence(steps),
        "decoder": {"type": "Fuse"},
        "model": {
            "type": "WordLevel",
            "vocab": {text_of(token): i for i, token in enumerate(definition.tokens) if token},
            "unk_token": definition.model.unknown_token,
        },
    }


def read(
    make: Callable[[Vocabulary, Mapping[str, Any]], Model],
    content: Mapping[str, Any],
    special_tokens: Mapping[str, int],
    num_reserved: int,
    where: str,
    *,
    steps: Sequence[Json],
) -> tuple[Model, PreTokenizer]:
    """Read the model and the pre-tokenizer."""
    model, decoder = content["model"], content.get("decoder")
    if decoder is None or decoder.get("type") != "Fuse":
        raise refusal(where, "decoder", decoder, "only Fuse can join the tokens of a WordLevel model here")
    unknown = unknown_token(model, special_tokens, where)
    if not steps:
        raise refusal(where, "pre_tokenizer", None, "a WordLevel model needs a Split before it")
    tokens = {i: text.encode() for i, text in texts_by_id(model["vocab"], special_tokens).items()}
    vocabulary = Vocabulary.build(tokens, special_tokens, num_reserved)
    chain = tuple(read_split(step, where, _STEPS) for step in steps)
    return make(vocabulary, {"unknown_token": unknown}), PreTokenizer(named(chain))
