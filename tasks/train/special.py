"""The settings of special tokens beside their names: ready sets, roles, templates, and padding.

They are left out of the fingerprint while they have their defaults. A set adds its names to
`special_tokens`, which decide how text is counted.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field, model_validator

from tokmill.tasks.count.stage import CountParams
from tokmill.tasks.store.fingerprint import UNLESS_DEFAULT, only_with
from tokmill.tokenizer.components.post_processors import check_template
from tokmill.tokenizer.components.roles import MAX_TEMPLATE_CHARS, check_roles, with_sets
from tokmill.tokenizer.core.vocabulary import reserved_name

_MADE = ("[UNK]", "<unk>", "<s>", "</s>", "<pad>")
"""Special tokens that families make themselves."""


_ON_SENTENCES = only_with("mode", "sentencepiece")


class SentenceParams(CountParams):
    """How pieces are learned from sentences; the settings of how these are read are with `count`."""

    split_by_unicode_script: bool = Field(
        default=True,
        description="No piece has characters of two scripts; Han and kana are one.",
        json_schema_extra=_ON_SENTENCES,
    )
    split_by_number: bool = Field(
        default=True,
        description="Digits have a script of their own, so that no piece has digits and letters.",
        json_schema_extra=_ON_SENTENCES,
    )
    split_digits: bool = Field(
        default=False, description="Every digit is a piece.", json_schema_extra=_ON_SENTENCES
    )
    unk_id: int = Field(default=0, ge=0, description="The id of <unk>.", json_schema_extra=_ON_SENTENCES)
    bos_id: int = Field(
        default=1, ge=-1, description="The id of <s>; -1 for none.", json_schema_extra=_ON_SENTENCES
    )
    eos_id: int = Field(
        default=2, ge=-1, description="The id of </s>; -1 for none.", json_schema_extra=_ON_SENTENCES
    )
    pad_id: int = Field(
        default=-1, ge=-1, description="The id of <pad>; -1 for none.", json_schema_extra=_ON_SENTENCES
    )


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
    template: str | None = Field(
        default=None,
        max_length=10_000,
        description="Special tokens that the tokenizer puts around a text when asked to, $A, e.g. "
        "[CLS] $A [SEP]. The stage encode has begin_of_document and end_of_document instead.",
        json_schema_extra=UNLESS_DEFAULT,
    )
    pair_template: str | None = Field(
        default=None,
        max_length=10_000,
        description="The same for two texts, $A and $B, with type ids after colons. By default it follows "
        "from template: [CLS] $A [SEP] $B:1 [SEP]:1.",
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
    """Check that roles are those of tokens that there will be."""
    check_roles(roles, dict.fromkeys(_names(special_tokens, num_reserved), 0))


def check_text_templates(params: SpecialParams, num_reserved: int) -> None:
    """Check that templates around texts are valid, and have tokens that there will be."""
    names = dict.fromkeys(_names(params.special_tokens, num_reserved), 0)
    check_template(params.template, params.pair_template, names)


def _names(special_tokens: Sequence[str], num_reserved: int) -> tuple[str, ...]:
    return (*special_tokens, *_MADE, *map(reserved_name, range(num_reserved)))
