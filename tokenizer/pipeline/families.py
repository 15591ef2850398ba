"""The registry of families of tokenizers.

A family is a module that holds a `FAMILY`, mostly `family` in a folder of its own. It is imported when it is
first needed, and families never import each other. To add one: its folder, and a line here.
"""

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, cast

from tokmill.tokenizer.core.errors import TokenizerError, TrainingError

if TYPE_CHECKING:
    from tokmill.tokenizer.core.buffers import EncodedBatch
    from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
    from tokmill.tokenizer.core.vocabulary import Vocabulary
    from tokmill.tokenizer.pipeline.model import Model, Trainer
    from tokmill.tokenizer.pipeline.options import ModelOptions

FAMILIES: MappingProxyType[str, str] = MappingProxyType(
    {
        "byte_bpe": "tokmill.tokenizer.byte_bpe.family",
        "char_bpe": "tokmill.tokenizer.char_bpe.family",
        "word_level": "tokmill.tokenizer.closed_vocabulary.family:WORD_LEVEL",
        "character_level": "tokmill.tokenizer.closed_vocabulary.family:CHARACTER_LEVEL",
        "longest_match": "tokmill.tokenizer.longest_match.family",
        "unigram": "tokmill.tokenizer.unigram.family",
        "word_bpe": "tokmill.tokenizer.word_bpe.family",
        "wordpiece": "tokmill.tokenizer.wordpiece.model",
    }
)
"""Modules that hold a `FAMILY`, or `module:name` for one of another name."""

DEFAULT_FAMILY = "byte_bpe"

if TYPE_CHECKING:
    FamilyName = str
else:
    FamilyName = Literal[*FAMILIES]  # for the schemas of forms and profiles, which list the names


def _accept(_options: "ModelOptions") -> None:
    """Accept all options."""


@dataclass(frozen=True)
class Family:
    """The face of a family.

    Attributes:
        name: its name in options, files and profiles.
        title: its name in text: "Byte-level BPE".
        unit: the things that its trainer makes one by one: "merges".
        from_spec: makes a model from its vocabulary and the result of `Model.spec`.
        trainer: takes counts, options and vocabulary sizes.
        least_vocab_size: takes the special tokens and the number of reserved ones; returns the smallest
            vocabulary that has room for something to learn, or for the alphabet.
        formats: the modules that read and write it, by format; docs/tokenizer.md lists their functions. The
            format `tokmill` needs none.
        decoder: the name of the decoder that its models have by default.
        check_options: raises a `TrainingError` for an option that its trainer does not use, so that a profile
            is refused before anything runs.
        sample: draws segmentations, given a definition, texts, its strength by name, and `seed`; None for a
            family that has one segmentation of each text.
        strength: what says how far it strays from the encoding.
        revision: raised whenever training with the same options, or an export, gives other bytes than before.
    """

    name: str
    title: str
    unit: str
    from_spec: "Callable[[Vocabulary, Mapping[str, Any]], Model]"
    trainer: "Callable[[PretokenCounts, ModelOptions, Sequence[int]], Trainer]"
    least_vocab_size: "Callable[[Sequence[str], int], int]"
    formats: Mapping[str, str] = field(default_factory=dict)
    decoder: str = "fuse"
    check_options: "Callable[[ModelOptions], None]" = _accept
    sample: "Callable[..., EncodedBatch] | None" = None
    strength: str = "dropout"
    revision: int = 0

    def format_module(self, format_name: str) -> Any:
        """Import the module of one of its formats, or an object in its place."""
        return _loaded(self.formats[format_name])


def find_family(name: object) -> Family:
    """Return a family.

    Raises:
        TokenizerError: there is none of this name.
    """
    if not isinstance(name, str) or name not in FAMILIES:
        raise TokenizerError(f"family={name!r:.80} is not known; use one of {', '.join(FAMILIES)}")
    family = _loaded(FAMILIES[name])
    return family if isinstance(family, Family) else cast(Family, family.FAMILY)


def _loaded(place: str) -> Any:
    """Import a module; of `module:name` return what has the name."""
    module, _, name = place.partition(":")
    loaded = importlib.import_module(module)
    return getattr(loaded, name) if name else loaded


def format_modules(format_name: str) -> Iterator[Any]:
    """Yield the modules of all families that have a format; each is imported when its turn comes."""
    for family in map(find_family, FAMILIES):
        if format_name in family.formats:
            yield family.format_module(format_name)


def check_mode(mode: str, family: str) -> None:
    """Refuse the mode `sentencepiece` for families that cannot be trained on whole sentences.

    Raises:
        TrainingError: names those that can.
    """
    able = [name for name in FAMILIES if "sentencepiece" in find_family(name).formats]
    if mode == "sentencepiece" and family not in able:
        raise TrainingError(
            f"train: mode='sentencepiece' is for the families {', '.join(able)}, but the family is {family!r}"
        )
