"""Closed vocabularies in a `tokenizer.json`: a `WordLevel` model, `Split` steps and the decoder `Fuse`.

A last step that isolates every character makes a word-level tokenizer character-level.
Tokens that are not UTF-8 cannot be written.
"""

from collections.abc import Mapping
from typing import Any

from tokmill.tokenizer.formats.models import JsonFile, text_of
from tokmill.tokenizer.formats.split_steps import (
    check_chain,
    in_sequence,
    split_steps,
    steps_of,
)
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.pipeline.families import find_family
from tokmill.tokenizer.pipeline.model import Model
from tokmill.tokenizer.splitting.splitter import PreTokenizer

EVERY_CHARACTER = r"[\s\S]"


def _ends_in_characters(content: Mapping[str, Any]) -> bool:
    """Whether a file cuts pre-tokens into characters: by its last step, after at least one other."""
    steps = steps_of(content.get("pre_tokenizer"))
    last = steps[-1] if len(steps) > 1 else {}
    return last.get("pattern") == {"Regex": EVERY_CHARACTER} and last.get("behavior") == "Isolated"


class ClosedFormat:
    """The format of a family whose last steps of cutting are not those of the split pattern."""

    def __init__(self, family: str, last: tuple[str, ...] = ()) -> None:
        self._family, self._last = family, last

    def reads(self, content: Mapping[str, Any]) -> bool:
        """Whether a file is of this family."""
        is_words = content["model"].get("type") == "WordLevel"
        return is_words and _ends_in_characters(content) == bool(self._last)

    def write(self, definition: Definition, *, exact: bool) -> dict[str, Any]:
        """Return the pre-tokenizer, the decoder and the model."""
        chain = definition.pre_tokenizer.chain
        check_chain(chain)
        return {
            "pre_tokenizer": in_sequence(split_steps((*chain, *self._last), exact=exact)),
            "decoder": {"type": "Fuse"},
            "model": {
                "type": "WordLevel",
                "vocab": {text_of(token): i for i, token in enumerate(definition.tokens) if token},
                "unk_token": definition.model.unknown_token,
            },
        }

    def read(self, file: JsonFile) -> tuple[Model, PreTokenizer]:
        """Read the model and the pre-tokenizer."""
        steps = file.steps[: len(file.steps) - len(self._last)]
        file.check_decoder("Fuse", "only Fuse can join the tokens of a WordLevel model here")
        unknown = file.unknown()
        if not steps:
            raise file.refusal("pre_tokenizer", None, "a WordLevel model needs a Split before it")
        made = find_family(self._family).from_spec(file.vocabulary(), {"unknown_token": unknown})
        return made, file.pre_tokenizer(steps)


WORD_LEVEL = ClosedFormat("word_level")
CHARACTER_LEVEL = ClosedFormat("character_level", (EVERY_CHARACTER,))
