"""Change the special tokens of a tokenizer without moving any id: rename, claim reserved ones, pad.

Laws: every ordinary token keeps its id and bytes, so a text without special tokens keeps its ids; a renamed
    token keeps its id, its roles and its places in the template; tokens that are added get the ids after
    the last one.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tokmill.tokenizer.components.post_processors import Part, Template
from tokmill.tokenizer.components.specials import check_names
from tokmill.tokenizer.core.errors import VocabularyError
from tokmill.tokenizer.core.vocabulary import MAX_IDS, Vocabulary, count_reserved, reserved_name
from tokmill.tokenizer.pipeline.definition import Definition

_PUBLISHED = re.compile(
    r"<\|reserved_special_token_\d+\|>|<SPECIAL_\d+>|<unused\d+>|\[unused\d+\]|<\|extra_\d+\|>"
)
"""Names of special tokens without a use in published vocabularies: Llama 3, Mistral, Gemma, BERT, Qwen."""


def free_names(definition: Definition) -> list[str]:
    """Return the special tokens without a use, by id: the reserved ones, and published ones like them."""
    reserved = set(definition.vocabulary.reserved)
    return [name for name in definition.special_tokens if name in reserved or _PUBLISHED.fullmatch(name)]


def claimed(definition: Definition, names: Sequence[str]) -> Definition:
    """Give names to the first free special tokens; see `renamed`."""
    wanted, free = check_names(names, "claim"), free_names(definition)
    if len(wanted) > len(free):
        raise VocabularyError(
            f"claim: {len(wanted)} names, but {len(free)} special tokens of this vocabulary are reserved; "
            "train with num_reserved, or pad the vocabulary to a multiple first"
        )
    return renamed(definition, dict(zip(free, wanted, strict=False)))


def renamed(definition: Definition, names: Mapping[str, str]) -> Definition:
    """Give special tokens other names."""
    check_names(names.values(), "rename")
    for old in names:
        if old not in definition.special_tokens or old == definition.model.unknown_token:
            what = "the unknown token" if old in definition.special_tokens else "not a special token"
            raise VocabularyError(f"rename: {old!r:.200} is {what} of this vocabulary; it cannot be renamed")
    known = definition.vocabulary.ids
    taken = [new for new in names.values() if new.encode() in known and new not in names]
    if taken:
        raise VocabularyError(f"rename: {taken[0]!r:.200} is a token already; use another name")
    ids = {names.get(name, name): token for name, token in definition.named_tokens.items()}
    return _with_special_tokens(definition, ids, names)


def padded(definition: Definition, multiple: int) -> Definition:
    """Add reserved tokens until the size of the vocabulary is a multiple of a number."""
    if multiple < 1:
        raise VocabularyError(f"pad: a multiple of {multiple} must be one of at least 1; use e.g. 128")
    size = definition.vocab_size
    num_missing = -size % multiple
    if size + num_missing > MAX_IDS:
        raise VocabularyError(
            f"pad: {size} ids padded to a multiple of {multiple} are {size + num_missing}, but a vocabulary "
            f"has at most {MAX_IDS}; use a smaller multiple"
        )
    if not num_missing:
        return definition
    unused = (name for name in map(reserved_name, itertools.count()) if name not in definition.named_tokens)
    added = dict(zip(itertools.islice(unused, num_missing), itertools.count(size), strict=False))
    return _with_special_tokens(definition, {**definition.named_tokens, **added}, {})


def _with_special_tokens(
    definition: Definition, special_tokens: Mapping[str, int], names: Mapping[str, str]
) -> Definition:
    old = definition.vocabulary
    vocabulary = Vocabulary.build(
        dict(old.ordinary()), special_tokens, count_reserved(special_tokens), old.byte_ids
    )
    roles = {role: name if name is None else names.get(name, name) for role, name in definition.roles.items()}
    kept = {role: names.get(name, name) for role, name in definition.all_roles.items()}
    template = definition.post_processor
    changed = replace(
        definition,
        model=definition.model.with_vocabulary(vocabulary),
        post_processor=None if template is None else _renamed_template(template, names),
        roles=roles,
        absorbing={names.get(name, name): side for name, side in definition.absorbing.items()},
        normalized_tokens=tuple(names.get(name, name) for name in definition.normalized_tokens),
    )
    return changed.with_roles(kept)


def _renamed_template(template: Template, names: Mapping[str, str]) -> Template:
    def new(part: Part) -> Part:
        return part if part.kind == "sequence" else replace(part, name=names.get(part.name, part.name))

    return Template(tuple(map(new, template.single)), tuple(map(new, template.pair)))
