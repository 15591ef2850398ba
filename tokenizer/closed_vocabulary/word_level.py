"""Word-level tokenizers: every pre-token is a token, or it is unknown."""

from collections.abc import Mapping
from typing import Any

from tokmill.tokenizer.closed_vocabulary import huggingface
from tokmill.tokenizer.closed_vocabulary.family import closed_family
from tokmill.tokenizer.formats.split_steps import steps_of
from tokmill.tokenizer.pipeline.encoder import whole_pretokens
from tokmill.tokenizer.pipeline.model import Model
from tokmill.tokenizer.splitting.splitter import PreTokenizer

write = huggingface.write


FAMILY = closed_family("word_level", "Word-level", "word", whole_pretokens, {"huggingface": __name__})


def reads(content: Mapping[str, Any]) -> bool:
    """Whether a `tokenizer.json` is of this family."""
    return huggingface.is_word_level(content) and not huggingface.ends_in_characters(content)


def read(
    content: Mapping[str, Any], special_tokens: Mapping[str, int], num_reserved: int, where: str
) -> tuple[Model, PreTokenizer]:
    """Read the model and the pre-tokenizer of a `tokenizer.json`."""
    steps = steps_of(content.get("pre_tokenizer"))
    return huggingface.read(FAMILY.from_spec, content, special_tokens, num_reserved, where, steps=steps)
