"""Word-level tokenizers in a `tokenizer.json`."""

from collections.abc import Mapping
from typing import Any

from tokmill.tokenizer.closed_vocabulary import huggingface
from tokmill.tokenizer.components.pre_tokenizers import PreTokenizer
from tokmill.tokenizer.formats.split_steps import steps_of
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.pipeline.model import Model
from tokmill.tokenizer.word_level.family import FAMILY


def reads(content: Mapping[str, Any]) -> bool:
    """Whether a file is of this family."""
    return huggingface.is_word_level(content) and not huggingface.ends_in_characters(content)


def write(definition: Definition, *, exact: bool) -> dict[str, Any]:
    """Return the pre-tokenizer, the decoder and the model; see `closed_vocabulary.huggingface`."""
    return huggingface.write(definition, exact=exact)


def read(
    content: Mapping[str, Any], special_tokens: Mapping[str, int], num_reserved: int, where: str
) -> tuple[Model, PreTokenizer]:
    """Read the model and the pre-tokenizer; see `closed_vocabulary.huggingface`."""
    steps = steps_of(content.get("pre_tokenizer"))
    return huggingface.read(FAMILY.from_spec, content, special_tokens, num_reserved, where, steps=steps)
