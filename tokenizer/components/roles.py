"""Roles: which special token begins a text, ends it, pads, masks, and so on; and chat templates.

No role changes the ids of a text. It is given (a name, or None), or else follows from the template and from
names that published models use for nothing else. A chat template is a Jinja template's text, carried and
never executed.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from tokmill.tokenizer.components.post_processors import Template
from tokmill.tokenizer.core.errors import VocabularyError
from tokmill.tokenizer.core.text import has_surrogates

NAMES: MappingProxyType[str, tuple[str, ...]] = MappingProxyType(
    {
        "bos": ("<|begin_of_text|>", "<|begin▁of▁sentence|>", "<s>", "<bos>", "[BOS]"),
        "eos": ("<|endoftext|>", "<|end_of_text|>", "<|end▁of▁sentence|>", "</s>", "<eos>", "[EOS]"),
        "pad": ("<|pad|>", "<|padding|>", "<|finetune_right_pad_id|>", "<pad>", "[PAD]"),
        "unk": (),
        "cls": ("[CLS]",),
        "sep": ("[SEP]",),
        "mask": ("[MASK]",),
        "fim_prefix": ("<|fim_prefix|>", "<fim_prefix>", "<fim-prefix>"),
        "fim_middle": ("<|fim_middle|>", "<fim_middle>", "<fim-middle>"),
        "fim_suffix": ("<|fim_suffix|>", "<fim_suffix>", "<fim-suffix>"),
        "turn_start": ("<|im_start|>", "<start_of_turn>", "<|start_header_id|>"),
        "turn_end": ("<|im_end|>", "<end_of_turn>", "<|eot_id|>"),
    }
)
"""The roles, and the names that say of a special token that it has one, the surest first."""

SPECIAL_SETS: MappingProxyType[str, tuple[str, ...]] = MappingProxyType(
    {
        "chat": ("<|im_start|>", "<|im_end|>"),
        "fim": ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>"),
        "bert": ("[PAD]", "[CLS]", "[SEP]", "[MASK]"),
    }
)
"""Ready sets of special tokens. Families that need an unknown token add it themselves."""

DEFAULT_TEMPLATE = "default"
MAX_TEMPLATES, MAX_TEMPLATE_CHARS, MAX_NAME_CHARS = 64, 1 << 20, 100
_ONLY_WITH_UNKNOWN = ("cls", "sep", "mask")

Roles = Mapping[str, str | None]


def with_sets(names: Sequence[str], sets: Sequence[str]) -> list[str]:
    """Return names of special tokens with those of ready sets after them, each once."""
    added = (name for known in sets if known in SPECIAL_SETS for name in SPECIAL_SETS[known])
    return [*names, *dict.fromkeys(name for name in added if name not in names)]


def roles_of_sets(sets: Sequence[str]) -> dict[str, str]:
    """Return the roles of the tokens of ready sets."""
    names = {name for known in sets for name in SPECIAL_SETS[known]}
    return {role: name for role, known in NAMES.items() for name in known if name in names}


def conventional(
    special_tokens: Mapping[str, int], template: Template | None, unknown: str | None
) -> dict[str, str]:
    """Return the roles that follow from the template, the model and the names of special tokens."""
    found = {
        role: next((name for name in names if name in special_tokens), None) for role, names in NAMES.items()
    }
    before, behind = template.around() if template is not None else ([], [])
    found["bos"] = next(iter(before), found["bos"])
    found["eos"] = next(iter(behind[-1:]), found["eos"])
    found["unk"] = unknown
    if unknown is None:
        found.update(dict.fromkeys(_ONLY_WITH_UNKNOWN))
    return {role: name for role, name in found.items() if name is not None}


def given_beside(found: Roles, following: Mapping[str, str]) -> dict[str, str | None]:
    """Return those of the roles that were found that do not follow anyway, in the order of `NAMES`."""
    return {role: found[role] for role in NAMES if role in found and found[role] != following.get(role)}


def check_roles(roles: object, special_tokens: Mapping[str, int]) -> None:
    """Check that roles are known ones, of special tokens."""
    if not isinstance(roles, Mapping):
        raise VocabularyError(f"roles: {roles!r:.200} must be special tokens by role")
    for role, name in roles.items():
        if role not in NAMES:
            raise VocabularyError(f"roles: {role!r:.80} is not known; use one of {', '.join(NAMES)}")
        if name is not None and (not isinstance(name, str) or name not in special_tokens):
            raise VocabularyError(
                f"roles: {role} is {name!r:.200}, which is not a special token of this vocabulary; add it to "
                "them"
            )


def check_templates(templates: object) -> None:
    """Check that chat templates are texts by name, and not too many or too long."""
    if not isinstance(templates, Mapping) or len(templates) > MAX_TEMPLATES:
        raise VocabularyError(f"chat templates: there must be at most {MAX_TEMPLATES}, texts by name")
    for name, text in templates.items():
        if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_CHARS or not name.isprintable():
            raise VocabularyError(f"chat templates: the name {name!r:.200} must be short and printable")
        if not isinstance(text, str) or len(text) > MAX_TEMPLATE_CHARS or has_surrogates(text):
            raise VocabularyError(
                f"chat templates: {name!r} must be a text that UTF-8 can hold, of at most "
                f"{MAX_TEMPLATE_CHARS} characters"
            )
