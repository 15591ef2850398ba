"""Character-level tokenizers: every character is a token, or it is unknown."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.closed_vocabulary import huggingface
from tokmill.tokenizer.closed_vocabulary.family import closed_family
from tokmill.tokenizer.formats.split_steps import steps_of
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.pipeline.model import Model
from tokmill.tokenizer.splitting import Pretokens
from tokmill.tokenizer.splitting.splitter import PreTokenizer


def cut(data: NDArray[np.uint8], pretokens: Pretokens) -> Pretokens:
    """Cut pre-tokens into characters: a byte, and the continuation bytes of UTF-8 that follow it.

    So every string of bytes has characters, well-formed or not.
    """
    if not pretokens.starts.shape[0]:
        return pretokens
    first, last = int(pretokens.starts[0]), int(pretokens.ends[-1])
    begins = (data[first:last] & 0xC0) != 0x80
    begins[pretokens.starts - first] = True
    starts = np.flatnonzero(begins) + first
    offsets = np.append(np.searchsorted(starts, pretokens.starts), starts.shape[0])[pretokens.offsets]
    return Pretokens(starts, np.append(starts[1:], last), offsets)


FAMILY = closed_family("character_level", "Character-level", "character", cut, {"huggingface": __name__})


def reads(content: Mapping[str, Any]) -> bool:
    """Whether a `tokenizer.json` is of this family."""
    return huggingface.is_word_level(content) and huggingface.ends_in_characters(content)


def write(definition: Definition, *, exact: bool) -> dict[str, Any]:
    """Return the pre-tokenizer, whose last step isolates every character, the decoder and the model."""
    return huggingface.write(definition, exact=exact, last=(huggingface.EVERY_CHARACTER,))


def read(
    content: Mapping[str, Any], special_tokens: Mapping[str, int], num_reserved: int, where: str
) -> tuple[Model, PreTokenizer]:
    """Read the model and the pre-tokenizer of a `tokenizer.json`."""
    steps = steps_of(content.get("pre_tokenizer"))[:-1]
    return huggingface.read(FAMILY.from_spec, content, special_tokens, num_reserved, where, steps=steps)
