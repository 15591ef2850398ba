"""The settings of training on whole sentences, which are those of SentencePiece's trainer."""

from pydantic import Field

from tokmill.tasks.count.stage import CountParams
from tokmill.tasks.store.digest import only_with

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
