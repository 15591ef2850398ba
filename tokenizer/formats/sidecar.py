"""The settings that other vocabulary formats lack: a small JSON file beside them, or arguments of `load`.

A `.tiktoken` file, or a `vocab.json` with its `merges.txt`, has byte strings and their order, but neither a
split pattern nor the special tokens. We write these into a sidecar; for files without one, the
caller passes them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tokmill.tokenizer.components.post_processors import Template
from tokmill.tokenizer.core.errors import FormatError, refuse_malformed
from tokmill.tokenizer.formats.files import read_json, write_json
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.splitting import Digits, PatternLike
from tokmill.tokenizer.splitting.splitter import PreTokenizer

SIDECAR_FORMAT = "tokmill sidecar"
SpecialTokens = Mapping[str, int] | Iterable[str]


@dataclass(frozen=True)
class Usage:
    """How a vocabulary is used; None for unknown settings.

    Attributes:
        split_pattern: a name, an expression, or a chain of them.
        digits: how digits are cut.
        normalizer: applied to text first.
        special_tokens: ids by name, or names of tokens that the file has.
        ignore_merges: whether a pre-token that is a token is taken whole.
        num_reserved: number of reserved special tokens.
        template: the special tokens around texts.
        unicode: the tables that training text was split with.
        rules: the model's own settings, for families that have some.
    """

    split_pattern: PatternLike | None = None
    digits: Digits | None = None
    normalizer: str | None = None
    special_tokens: SpecialTokens | None = None
    ignore_merges: bool | None = None
    num_reserved: int | None = None
    template: Template | None = None
    unicode: Mapping[str, str] | None = None
    rules: Mapping[str, Any] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no setting is known."""
        return self == Usage()

    def over(self, other: "Usage") -> "Usage":
        """Return these settings, with those of `other` for the unknown ones."""
        return Usage(
            **{
                name: getattr(other, name) if getattr(self, name) is None else getattr(self, name)
                for name in self.__dataclass_fields__
            }
        )

    def parts(self, split_pattern: PatternLike) -> dict[str, Any]:
        """Return what `Definition.compose` takes, with the split pattern that is usual without one."""
        return {
            "split_pattern": self.split_pattern or split_pattern,
            "digits": self.digits or "pattern",
            "normalizer": self.normalizer,
            "template": self.template,
            "unicode": self.unicode,
        }

    def special_ids(self, path: Path) -> dict[str, int]:
        """Return the special tokens' ids, which a file does not say."""
        if self.special_tokens is None or isinstance(self.special_tokens, Mapping):
            return dict(self.special_tokens or {})
        raise FormatError(
            f"{path}: special_tokens must say their ids, because the file does not: pass {{name: id}}"
        )

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a sidecar; without a file all settings are unknown."""
        if not path.exists():
            return cls()
        content = read_json(path)
        if content.get("format") != SIDECAR_FORMAT or content.get("version") != 1:
            raise FormatError(
                f"{path}: format={content.get('format')!r} and version={content.get('version')!r} must be "
                f"{SIDECAR_FORMAT!r} and 1; remove the file, and pass split_pattern and special_tokens"
            )
        _check_types(content, path)
        with refuse_malformed(str(path)):
            pre_tokenizer = PreTokenizer.from_spec(content)
            return cls(
                pre_tokenizer.split_pattern,
                pre_tokenizer.digits,
                normalizer=content["normalizer"],
                special_tokens=content["special_tokens"],
                ignore_merges=content["ignore_merges"],
                num_reserved=content["num_reserved"],
                template=Template.from_spec(content["template"]) if "template" in content else None,
                unicode=content.get("unicode"),
                rules=content.get("rules"),
            )


_TYPES: Mapping[str, tuple[type, ...]] = {
    "split_pattern": (str, list),
    "digits": (str,),
    "split_chain": (list,),
    "normalizer": (str, type(None)),
    "special_tokens": (dict,),
    "ignore_merges": (bool,),
    "num_reserved": (int,),
}


def _check_types(content: Mapping[str, Any], path: Path) -> None:
    for name, types in _TYPES.items():
        if name not in content or type(content[name]) not in types:
            raise FormatError(
                f"{path}: {name}={content.get(name)!r:.200} must be of type "
                f"{' or '.join(kind.__name__ for kind in types)}; save the tokenizer again, or remove it"
            )


def write(
    definition: Definition, path: Path, *, ignore_merges: bool, rules: Mapping[str, Any] | None = None
) -> Path:
    """Write a vocabulary's settings as a sidecar, with the model's own if it has some."""
    content: dict[str, Any] = {
        "format": SIDECAR_FORMAT,
        "version": 1,
        **definition.pre_tokenizer.spec(),
        "normalizer": definition.normalizer.spec(),
        "special_tokens": dict(definition.special_tokens),
        "ignore_merges": ignore_merges,
        "num_reserved": definition.num_reserved,
    }
    if rules is not None:
        content["rules"] = dict(rules)
    if definition.unicode is not None:
        content["unicode"] = dict(definition.unicode)
    if definition.post_processor is not None:
        content["template"] = definition.post_processor.spec()
    chain = definition.pre_tokenizer.chain
    if len(chain) == 1:
        content["pat_str"] = chain[0]  # what tiktoken.Encoding takes
    return write_json(path, content)
