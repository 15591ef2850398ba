"""The settings of special tokens beside their names: ready sets, roles, a chat template, and padding.

They are left out of the fingerprint while they have their defaults. A set adds its names to
`special_tokens`, which decide how text is counted.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field, model_validator

from tokmill.tasks.store.canonical import UNLESS_DEFAULT
from tokmill.tasks.train.sentencepiece import SentenceParams
from tokmill.tokenizer.components.roles import MAX_TEMPLATE_CHARS, check_roles, with_sets
from tokmill.tokenizer.core.vocabulary import reserved_name

_MADE = ("[UNK]", "<unk>", "<s>", "</s>", "<pad>")
"""Special tokens that families make themselves."""


class SpecialParams(SentenceParams):
    """Special tokens by set, their roles, and how many reserved ones are added at the end."""

    special_sets: tuple[Literal["chat", "fim", "bert"], ...] = Field(
        default=(),
        description="Ready sets of special tokens, added to special_tokens: chat (<|im_start|>, <|im_end|>), "
        "fim (<|fim_prefix|>, <|fim_middle|>, <|fim_suffix|>, <|fim_pad|>), bert ([PAD], [CLS], [SEP], "
        "[MASK]).",
        json_schema_extra=UNLESS_DEFAULT,
    )
    roles: dict[str, str] = Field(
        default={},
        description="Special tokens by role (bos, eos, pad, cls, sep, mask, fim_prefix, …), where the role "
        "does not follow from the name.",
        json_schema_extra=UNLESS_DEFAULT,
    )
    chat_template: str | None = Field(
        default=None,
        max_length=MAX_TEMPLATE_CHARS,
        description="The text of a Jinja template for chats; it is written for transformers, never executed.",
        json_schema_extra=UNLESS_DEFAULT,
    )
    pad_to_multiple_of: int = Field(
        default=1,
        ge=1,
        le=1 << 16,
        description="Reserved tokens are added beyond vocab_size until the number of ids is a multiple of "
        "this, e.g. 128.",
        json_schema_extra=UNLESS_DEFAULT,
    )

    @model_validator(mode="before")
    @classmethod
    def _add_sets(cls, given: Any) -> Any:
        sets = given.get("special_sets") if isinstance(given, Mapping) else None
        if not isinstance(sets, list | tuple):
            return given
        names = given.get("special_tokens", cls.model_fields["special_tokens"].default)
        if not isinstance(names, list | tuple):
            return given
        return {**given, "special_tokens": with_sets(names, sets)}


def check_role_names(roles: Mapping[str, str], special_tokens: Sequence[str], num_reserved: int) -> None:
    """Check that roles are those of tokens that there will be.

    Raises:
        VocabularyError: names the role, and the token if that is missing.
    """
    names = (*special_tokens, *_MADE, *map(reserved_name, range(num_reserved)))
    check_roles(roles, dict.fromkeys(names, 0))
