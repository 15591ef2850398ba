"""A tokenizer's definition: the parts of its pipeline, which decide its ids; JSON-able.

text → normalizer → pre_tokenizer → model → post_processor → ids → decoder → text
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

from tokmill.tokenizer.components.decoders import Decoder
from tokmill.tokenizer.components.normalizers import Normalizer
from tokmill.tokenizer.components.post_processors import Template
from tokmill.tokenizer.components.roles import (
    Roles,
    check_roles,
    check_templates,
    conventional,
    given_beside,
)
from tokmill.tokenizer.components.sentences import SentenceNormalizer
from tokmill.tokenizer.components.specials import Side, Wanted, check_sides
from tokmill.tokenizer.components.steps import Marks, StepNormalizer
from tokmill.tokenizer.core.errors import FormatError, VocabularyError, refuse_malformed
from tokmill.tokenizer.core.text import to_byte_strings, to_texts
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.pipeline.families import FAMILIES, find_family
from tokmill.tokenizer.pipeline.model import Model, TextNormalizer
from tokmill.tokenizer.splitting import Digits, PatternLike
from tokmill.tokenizer.splitting.splitter import PreTokenizer

SPEC_FORMAT = "tokmill"
SPEC_VERSION, TEMPLATE_VERSION, ABSORBING_VERSION = 1, 2, 3
"""A reader that knows no templates, or neither added tokens nor any that take white space, refuses them."""


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
        absorbing: special and added tokens that take the white space beside them, and on which sides.
        added_tokens: tokens that are not special, but whose text always becomes them, since it is cut out
            before anything else happens to the text. The model may know them, too.
        normalized_tokens: special and added tokens that are looked for after the others, in the normalized
            text; their own text is normalized for that.

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
    added_tokens: tuple[str, ...] = ()
    normalized_tokens: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_added(self.added_tokens, self.vocabulary)
        check_sides(self.absorbing, self.cut_out_ids)
        _check_normalized(self.normalized_tokens, self.cut_out_ids)
        self._normalize_tokens()
        _check_unicode(self.unicode)
        check_roles(self.roles, self.named_tokens)
        check_templates(self.chat_templates)
        if self.post_processor is not None:
            self.post_processor.check(self.named_tokens)

    def _normalize_tokens(self) -> None:
        """Give the tokens that are looked for in normalized text the bytes that they have there."""
        spellings: dict[int, bytes] = {}
        for name in self.normalized_tokens:
            text, token = self.normalizers[0].text(name), self.cut_out_ids[name]
            if text and text.encode() != self.tokens[token]:
                spellings[token] = text.encode()
            if token in spellings and name not in self.named_tokens:
                raise VocabularyError(
                    f"vocabulary: normalized_tokens has {name!r:.80}, which is a piece of the model, but "
                    f"{text!r:.80} in normalized text; leave it out"
                )
        if spellings:
            model = self.model.with_vocabulary(self.vocabulary.with_bytes(spellings))
            object.__setattr__(self, "model", model)

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

    @cached_property
    def special_tokens(self) -> Mapping[str, int]:
        """Ids of the special tokens by name, reserved ones included, by id."""
        added, named = {*self.added_tokens}, self.named_tokens
        return {name: token for name, token in named.items() if name not in added} if added else named

    @property
    def named_tokens(self) -> Mapping[str, int]:
        """Ids of the special tokens, and of the added tokens that the model does not know, by name."""
        return self.vocabulary.special_tokens

    @cached_property
    def added_ids(self) -> Mapping[str, int]:
        """Ids of the added tokens by text."""
        named, own = self.named_tokens, self.vocabulary
        return {text: named[text] if text in named else own.ids[text.encode()] for text in self.added_tokens}

    @cached_property
    def cut_out_ids(self) -> Mapping[str, int]:
        """Ids of all special and added tokens by text, the special ones first."""
        return {**self.special_tokens, **self.added_ids}

    @cached_property
    def sides(self) -> Mapping[int, Side]:
        """On which sides special and added tokens take white space, by id."""
        return {self.cut_out_ids[name]: side for name, side in self.absorbing.items()}

    @cached_property
    def normalizers(self) -> tuple[TextNormalizer, TextNormalizer]:
        """What happens to a text before tokens are looked for in it once more, and what after that.

        Marks are put into a text at the end, as a `Metaspace` does.
        """
        steps = self.normalizer.steps if isinstance(self.normalizer, StepNormalizer) else ()
        if not self.normalized_tokens or not steps or not isinstance(steps[-1], Marks):
            return (
                (self.normalizer, Normalizer()) if self.normalized_tokens else (Normalizer(), self.normalizer)
            )
        return StepNormalizer(steps[:-1]) if steps[1:] else Normalizer(), StepNormalizer(steps[-1:])

    def wanted(self, specials: Wanted) -> Wanted:
        """Return all tokens to look for in a text, where these are the special ones among them."""
        if not self.added_tokens and not self.normalized_tokens:
            return specials
        hiding = self.special_tokens.keys() - specials.tokens.keys()
        hidden = frozenset(self.special_tokens[name] for name in hiding)
        return replace(self._all_wanted, refused=specials.refused, hiding=hidden)

    @cached_property
    def _all_wanted(self) -> Wanted:
        late = {*self.normalized_tokens}
        early = {name: token for name, token in self.cut_out_ids.items() if name not in late}
        found: dict[str, int] = {}
        for name, token in self.cut_out_ids.items():
            if name in late:
                found.setdefault(self.normalizers[0].text(name), token)
        return Wanted(early, {text: token for text, token in found.items() if text})

    def kinds(self) -> list[str]:
        """Return the kind of every id: `added`, or what the model says."""
        return [*self._kinds]

    @cached_property
    def _kinds(self) -> list[str]:
        kinds = self.model.kinds()
        for token in self.added_ids.values():
            kinds[token] = "added" if kinds[token] != "unknown" else "unknown"
        return kinds

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
        return conventional(self.named_tokens, self.post_processor, self.model.unknown_token)

    def with_roles(self, roles: Roles) -> Self:
        """Return the same tokenizer with some other roles; None takes a role away."""
        check_roles(roles, self.named_tokens)
        return replace(self, roles=given_beside({**self.roles, **roles}, self._following))

    def with_template(self, single: str | None, pair: str | None = None) -> Self:
        """Return the same tokenizer with another template, as `Template.parse` reads it; None for none."""
        made = None if single is None else Template.parse(single, pair)
        return replace(self, post_processor=made)

    def with_chat_templates(self, templates: Mapping[str, str]) -> Self:
        """Return the same tokenizer with these chat templates, texts by name."""
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
            **({"added_tokens": dict(self.added_ids)} if self.added_tokens else {}),
            **({"normalized_tokens": list(self.normalized_tokens)} if self.normalized_tokens else {}),
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
        if self.absorbing or self.added_tokens or self.normalized_tokens:
            return ABSORBING_VERSION
        return SPEC_VERSION if self.post_processor is None else TEMPLATE_VERSION

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any], where: str = "spec") -> Self:
        """Build a definition from the result of `to_spec`."""
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
        texts = {i: text for i, text in enumerate(spec["tokens"]) if text is not None}
        tokens = dict(zip(texts, to_byte_strings([*texts.values()], where), strict=True))
        byte_ids = [int(token) for token in spec.get("byte_ids", ())]
        added = spec.get("added_tokens", {})
        named = {name: token for name, token in added.items() if token not in tokens}
        vocabulary = Vocabulary.build(tokens, spec["special_tokens"] | named, spec["num_reserved"], byte_ids)
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
            (*added,),
            tuple(spec.get("normalized_tokens", ())),
        )


def _read_normalizer(spec: object) -> TextNormalizer:
    if isinstance(spec, Mapping) and "steps" in spec:
        return StepNormalizer.from_spec(spec)
    if isinstance(spec, Mapping):
        return SentenceNormalizer.from_spec(spec)
    return Normalizer(spec)  # type: ignore[arg-type]  # it checks its type


def _spell(vocabulary: Vocabulary) -> list[str | None]:
    """Write every token but the special ones in the byte alphabet, by id; None where there is none."""
    spelled: list[str | None] = [text or None for text in to_texts(vocabulary.tokens)]
    for token in vocabulary.special_tokens.values():
        spelled[token] = None
    return spelled


def _check_added(added: Sequence[str], vocabulary: Vocabulary) -> None:
    if len({*added}) < len(added):
        raise VocabularyError("vocabulary: an added token is named twice; leave one out")
    for text in added:
        token = vocabulary.special_tokens.get(text, vocabulary.ids.get(text.encode()))
        if token is None or token in vocabulary.byte_ids:
            raise VocabularyError(f"vocabulary: {text!r:.80} is added, but is not a token; leave it out")


def _check_normalized(names: Sequence[str], known: Mapping[str, int]) -> None:
    for name in names:
        if name not in known:
            raise VocabularyError(
                f"vocabulary: normalized_tokens has {name!r:.80}, which is not a special or added token"
            )


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
