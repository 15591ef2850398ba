"""A tokenizer's definition: the parts of its pipeline, which decide its ids.

    text → normalizer → pre_tokenizer → model → post_processor → ids → decoder → text

Each part is a frozen value with a form as JSON-able data; this module puts them
together. `to_spec` returns the form of the whole, equal for equal tokenizers, and `from_spec` reads it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

from tokmill.tokenizer.components.absorbing import Side, check_sides
from tokmill.tokenizer.components.decoders import Decoder
from tokmill.tokenizer.components.normalizers import Normalizer
from tokmill.tokenizer.components.post_processors import Template
from tokmill.tokenizer.components.pre_tokenizers import PreTokenizer
from tokmill.tokenizer.components.roles import (
    Roles,
    check_roles,
    check_templates,
    conventional,
    given_beside,
)
from tokmill.tokenizer.components.sentences import SentenceNormalizer
from tokmill.tokenizer.components.step_normalizer import StepNormalizer
from tokmill.tokenizer.core.alphabet import to_bytes, to_text
from tokmill.tokenizer.core.errors import FormatError, VocabularyError
from tokmill.tokenizer.core.malformed import refuse_malformed
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.pipeline.families import FAMILIES, find_family
from tokmill.tokenizer.pipeline.model import Model, TextNormalizer
from tokmill.tokenizer.splitting import Digits, PatternLike

SPEC_FORMAT = "tokmill"
SPEC_VERSION, TEMPLATE_VERSION, ABSORBING_VERSION = 1, 2, 3
"""A reader that knows no templates, or no tokens that take white space or are kept, must not ignore them."""


@dataclass(frozen=True, eq=False)
class Definition:
    """The pipeline of a tokenizer.

    Attributes:
        model: turns pre-tokens into ids.
        pre_tokenizer: cuts text into pre-tokens.
        normalizer: applied to text first.
        post_processor: the special tokens that `add_special_tokens` puts around texts; None for none.
        decoder: joins the bytes of tokens.
        unicode: the Unicode tables that its training text was split with: `version` and `tables`, a digest of
            the classes of characters that the split pattern distinguishes; None if unknown.
        roles: special tokens by role where the role does not follow from names; see `components.roles`.
        chat_templates: texts of Jinja templates by name, which are carried and never executed.
        absorbing: special tokens that take the white space beside them, and on which sides.
        kept: tokens that are not special, but whose text always becomes them, since it is cut out before the
            text is normalized.

    Raises:
        VocabularyError: the parts do not fit together.
    """

    model: Model
    pre_tokenizer: PreTokenizer
    normalizer: TextNormalizer = field(default_factory=Normalizer)
    post_processor: Template | None = None
    decoder: Decoder = field(default_factory=Decoder)
    unicode: Mapping[str, str] | None = None
    roles: Roles = field(default_factory=dict)
    chat_templates: Mapping[str, str] = field(default_factory=dict)
    absorbing: Mapping[str, Side] = field(default_factory=dict)
    kept: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_sides(self.absorbing, self.special_tokens)
        _check_kept(self.kept, self.vocabulary)
        _check_unicode(self.unicode)
        check_roles(self.roles, self.special_tokens)
        check_templates(self.chat_templates)
        if self.post_processor is not None:
            self.post_processor.check(self.special_tokens)

    @classmethod
    def compose(
        cls,
        model: Model,
        *,
        split_pattern: PatternLike,
        digits: Digits = "pattern",
        normalizer: str | None = None,
        template: Template | None = None,
        decoder: str = "fuse",
        unicode: Mapping[str, str] | None = None,
    ) -> Self:
        """Put a model together with parts that are chosen by name.

        See `PreTokenizer`, `Normalizer` and `Decoder`.

        Raises:
            TokenizerError: an unknown name, or parts that do not fit together.
        """
        parts = PreTokenizer(split_pattern, digits), Normalizer(normalizer)
        return cls(model, *parts, template, Decoder(decoder), unicode)

    @property
    def family(self) -> str:
        """The name of the model's family."""
        return self.model.family

    @property
    def vocabulary(self) -> Vocabulary:
        """The bytes of every id, special tokens included."""
        return self.model.vocabulary

    @property
    def vocab_size(self) -> int:
        """The greatest id plus one."""
        return self.vocabulary.size

    @property
    def tokens(self) -> list[bytes]:
        """The bytes of each id; empty where an id has no token."""
        return self.vocabulary.tokens

    @property
    def special_tokens(self) -> Mapping[str, int]:
        """Ids of the special tokens by name, reserved ones included, by id."""
        return self.vocabulary.special_tokens

    @property
    def sides(self) -> Mapping[int, Side]:
        """On which sides special tokens take white space, by id."""
        return {self.special_tokens[name]: side for name, side in self.absorbing.items()}

    @cached_property
    def kept_ids(self) -> Mapping[str, int]:
        """Ids of the tokens that are always found in a text, by text."""
        return {text: self.vocabulary.ids[text.encode()] for text in self.kept}

    @property
    def num_reserved(self) -> int:
        """Number of reserved special tokens."""
        return self.vocabulary.num_reserved

    @property
    def all_roles(self) -> dict[str, str]:
        """Special tokens by role: the given ones, and those that follow from names and the template."""
        found: dict[str, str | None] = {**self._following, **self.roles}
        return {role: name for role, name in found.items() if name is not None}

    @property
    def _following(self) -> dict[str, str]:
        return conventional(self.special_tokens, self.post_processor, self.model.unknown_token)

    def with_roles(self, roles: Roles) -> Self:
        """Return the same tokenizer with some other roles; None takes a role away.

        Raises:
            VocabularyError: a role is not known, or its token is no special token.
        """
        check_roles(roles, self.special_tokens)
        return replace(self, roles=given_beside({**self.roles, **roles}, self._following))

    def with_template(self, single: str | None, pair: str | None = None) -> Self:
        """Return the same tokenizer with another template, as `Template.parse` reads it; None for none.

        Raises:
            VocabularyError: it is invalid, or has a token that is no special token.
        """
        made = None if single is None else Template.parse(single, pair)
        return replace(self, post_processor=made)

    def with_chat_templates(self, templates: Mapping[str, str]) -> Self:
        """Return the same tokenizer with these chat templates, texts by name.

        Raises:
            VocabularyError: there are too many, or one is too long.
        """
        return replace(self, chat_templates=dict(templates))

    def to_spec(self) -> dict[str, Any]:
        """Return the definition as JSON-able data, from which `from_spec` builds it again.

        Equal tokenizers give equal data. Byte strings are written in GPT-2's byte alphabet. Parts that are
        the default, and that older readers do not know, are left out.
        """
        template = {} if self.post_processor is None else {"template": self.post_processor.spec()}
        unicode = {} if self.unicode is None else {"unicode": dict(self.unicode)}
        decoder = {} if self.decoder == Decoder() else {"decoder": self.decoder.spec()}
        byte_ids = sorted(self.vocabulary.byte_ids)
        return {
            **({"byte_ids": byte_ids} if byte_ids else {}),
            **template,
            **unicode,
            **decoder,
            **({"roles": dict(self.roles)} if self.roles else {}),
            **({"chat_templates": dict(self.chat_templates)} if self.chat_templates else {}),
            **({"absorbing": dict(self.absorbing)} if self.absorbing else {}),
            **({"kept": list(self.kept)} if self.kept else {}),
            "format": SPEC_FORMAT,
            "version": self._version,
            "family": self.family,
            "normalizer": self.normalizer.spec(),
            **self.pre_tokenizer.spec(),
            "special_tokens": dict(self.special_tokens),
            "num_reserved": self.num_reserved,
            "tokens": _spell(self.vocabulary),
            **self.model.spec(),
        }

    @property
    def _version(self) -> int:
        """The oldest version whose readers know all parts."""
        if self.absorbing or self.kept:
            return ABSORBING_VERSION
        return SPEC_VERSION if self.post_processor is None else TEMPLATE_VERSION

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any], where: str = "spec") -> Self:
        """Build a definition from the result of `to_spec`.

        Raises:
            FormatError: it is not of this form; the message begins with `where`.
            VocabularyError: the vocabulary breaks a law.
        """
        if spec.get("format") != SPEC_FORMAT or spec.get("family") not in (*FAMILIES,):
            raise FormatError(
                f"{where}: format={spec.get('format')!r} and family={spec.get('family')!r} must be "
                f"{SPEC_FORMAT!r} and one of {', '.join(FAMILIES)}"
            )
        if spec.get("version") not in (SPEC_VERSION, TEMPLATE_VERSION, ABSORBING_VERSION):
            raise FormatError(
                f"{where}: version={spec.get('version')!r} is not known here, which reads up to "
                f"{ABSORBING_VERSION}; a newer tokmill wrote it, so use that one"
            )
        with refuse_malformed(where):
            return cls._from_fields(spec, where)

    @classmethod
    def _from_fields(cls, spec: Mapping[str, Any], where: str) -> Self:
        tokens = {i: to_bytes(text, where) for i, text in enumerate(spec["tokens"]) if text is not None}
        byte_ids = [int(token) for token in spec.get("byte_ids", ())]
        vocabulary = Vocabulary.build(tokens, spec["special_tokens"], spec["num_reserved"], byte_ids)
        return cls(
            find_family(spec["family"]).from_spec(vocabulary, spec),
            PreTokenizer.from_spec(spec),
            _read_normalizer(spec["normalizer"]),
            Template.from_spec(spec["template"]) if "template" in spec else None,
            Decoder(spec.get("decoder", Decoder().name)),
            spec.get("unicode"),
            spec.get("roles", {}),
            spec.get("chat_templates", {}),
            spec.get("absorbing", {}),
            tuple(spec.get("kept", ())),
        )


def _read_normalizer(spec: object) -> TextNormalizer:
    if isinstance(spec, Mapping) and "steps" in spec:
        return StepNormalizer.from_spec(spec)
    if isinstance(spec, Mapping):
        return SentenceNormalizer.from_spec(spec)
    return Normalizer(spec)  # type: ignore[arg-type]  # it checks its type


def _spell(vocabulary: Vocabulary) -> list[str | None]:
    """Write every token but the special ones in the byte alphabet, by id; None where there is none."""
    spelled: list[str | None] = [None] * vocabulary.size
    for i, token in vocabulary.ordinary():
        spelled[i] = to_text(token)
    return spelled


def _check_kept(kept: Sequence[str], vocabulary: Vocabulary) -> None:
    for text in kept:
        token = vocabulary.ids.get(text.encode())
        if token is None or text in vocabulary.special_tokens or token in vocabulary.byte_ids:
            raise VocabularyError(f"vocabulary: {text!r:.80} is kept, but is no ordinary token; leave it out")


def _check_unicode(unicode: object) -> None:
    values = [unicode.get(key) for key in ("version", "tables")] if isinstance(unicode, Mapping) else []
    if unicode is not None and not (
        len(values) == 2
        and all(isinstance(value, str) and value.isprintable() for value in values)
        and all(value.isascii() and len(value) < 100 for value in values if isinstance(value, str))
    ):
        raise VocabularyError(
            f"vocabulary: unicode={unicode!r:.200} must hold the texts 'version' and 'tables', short and in "
            "ASCII, or be left out"
        )
