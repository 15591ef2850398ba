"""GGUF's tokenizer section, read: the vocabulary that llama.cpp keeps in a model's file.

The family whose models the file holds (`tokenizer.ggml.model`) makes the tokenizer. Here: the tokens that are
put around texts (`add_bos_token` and the like) become a template, ids of roles become roles, and chat
templates are carried.

Law: ids are those of the vocabulary's own library, which llama.cpp gives, too, but for its own shortcuts
    (docs/formats.md lists them).
"""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokmill.tokenizer.components.post_processors import Template
from tokmill.tokenizer.core.errors import FormatError
from tokmill.tokenizer.core.malformed import refuse_malformed
from tokmill.tokenizer.formats.gguf_file import read_metadata
from tokmill.tokenizer.formats.gguf_section import Reading, Section
from tokmill.tokenizer.formats.model_file import PieceKind
from tokmill.tokenizer.formats.sidecar import Usage
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.pipeline.families import FAMILIES, find_family

logger = logging.getLogger(__name__)


def read(path: Path, usage: Usage) -> Definition:
    """Read the tokenizer of a model; its tensors are not touched.

    Raises:
        FormatError: it is damaged, has no tokenizer or one that is not supported, or settings were given.
        VocabularyError: the vocabulary breaks a law.
    """
    if not usage.is_empty:
        raise FormatError(
            f"{path}: says itself how text is split, normalized and what is special; pass the path alone"
        )
    section = Section(str(path), read_metadata(path))
    with refuse_malformed(str(path)):
        reading = _with_added(_part_for(section).read(section), section)
        return _with_roles(_with_template(reading, section), reading, section)


def _part_for(section: Section) -> Any:
    """Return the module of the family whose models have this name."""
    parts = [
        family.format_module("gguf") for family in map(find_family, FAMILIES) if "gguf" in family.formats
    ]
    name = section.get("model", str)
    for part in parts:
        if name == part.MODEL:
            return part
    if name is None:
        raise section.trouble("has no tokenizer; of a model in several files, pass the first one")
    known = ", ".join(part.MODEL for part in parts)
    raise section.trouble(f"tokenizer.ggml.model={name!r:.80}, but only {known} can be read")


def _with_added(reading: Reading, section: Section) -> Reading:
    """Return what a family read, with tokens that users defined as added ones, unless they are pieces."""
    named = reading.definition.named_tokens.items()
    added = tuple(name for name, token in named if section.kinds[token] == PieceKind.USER_DEFINED)
    return replace(reading, definition=replace(reading.definition, added_tokens=added))


def _with_template(reading: Reading, section: Section) -> Definition:
    """Return the tokenizer with the template of its tokens around texts, if there are any."""
    if not reading.before and not reading.after:
        return reading.definition
    ids, names = section.roles(reading.roles), {}
    known = {token: name for name, token in reading.definition.named_tokens.items()}
    for role in (*reading.before, *reading.after):
        token = ids.get(role)
        if token is None or token not in known:
            raise section.trouble(
                f"add_{role}_token is true, but {role} is {token}, which is no special token; convert the "
                "model anew"
            )
        names[role] = known[token]
    before, after = ([names[role] for role in roles] for roles in (reading.before, reading.after))
    return replace(
        reading.definition, post_processor=Template.around_each(before, after, type_ids=reading.type_ids)
    )


def _with_roles(definition: Definition, reading: Reading, section: Section) -> Definition:
    """Return the tokenizer with its roles and chat templates; an ordinary token has no role."""
    names, found = {token: name for name, token in definition.named_tokens.items()}, {}
    for role, token in section.roles(reading.roles).items():
        if token in names:
            found[role] = names[token]
        else:
            logger.warning("%s: %s is id %d, which is no special token; left out", section.where, role, token)
    if definition.model.unknown_token is not None:
        found.pop("unk", None)  # the model decides it
    definition = definition.with_roles(found)
    templates = section.templates()
    return definition.with_chat_templates(templates) if templates else definition
