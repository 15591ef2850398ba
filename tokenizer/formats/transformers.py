"""`tokenizer_config.json`: the settings of `transformers.AutoTokenizer` that tokenizer files lack.

Written: the class that reads any `tokenizer.json`, the roles of special tokens, and chat templates, a single
one also as `chat_template.jinja`. Read: roles and chat templates, also of `special_tokens_map.json` and
`*.jinja`.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokmill.tokenizer.components.roles import DEFAULT_TEMPLATE, MAX_TEMPLATES, NAMES
from tokmill.tokenizer.core.errors import FormatError, refuse_malformed
from tokmill.tokenizer.formats.files import read_file, read_json, write_file, write_json
from tokmill.tokenizer.pipeline.definition import Definition

FILE_NAME, MAP_FILE_NAME = "tokenizer_config.json", "special_tokens_map.json"
TEMPLATE_FILE_NAME, TEMPLATE_FOLDER = "chat_template.jinja", "additional_chat_templates"

_ROLES = ("bos", "eos", "pad", "unk", "cls", "sep", "mask")
"""Those that `transformers` has a setting for, such as `bos_token`."""
_OTHERS = "special_token_roles"

logger = logging.getLogger(__name__)


def write(definition: Definition, folder: Path, **more: bool) -> list[Path]:
    """Write the files into a folder, with more settings."""
    content: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        **{f"{role}_token": name for role, name in definition.all_roles.items() if role in _ROLES},
    }
    named = [name for name in definition.special_tokens if name not in content.values()]
    if named:
        content["additional_special_tokens"] = named
    written = [write_json(folder / FILE_NAME, content | given_settings(definition) | more)]
    templates = definition.chat_templates
    if [*templates] == [DEFAULT_TEMPLATE]:
        text = templates[DEFAULT_TEMPLATE].encode()
        written.append(write_file(folder / TEMPLATE_FILE_NAME, text))
    return written


def given_settings(definition: Definition) -> dict[str, Any]:
    """Return the settings of the roles that were given, and of chat templates."""
    roles, templates = definition.roles, definition.chat_templates
    others = {role: name for role, name in roles.items() if role not in _ROLES}
    return {
        **{f"{role}_token": roles[role] for role in _ROLES if role in roles},
        **({_OTHERS: others} if others else {}),
        **({"chat_template": _written_templates(templates)} if templates else {}),
    }


def _written_templates(templates: Mapping[str, str]) -> str | list[dict[str, str]]:
    if [*templates] == [DEFAULT_TEMPLATE]:
        return templates[DEFAULT_TEMPLATE]
    return [{"name": name, "template": templates[name]} for name in sorted(templates)]


def with_settings(definition: Definition, folder: Path) -> Definition:
    """Return a tokenizer with the roles and chat templates that lie in its file's folder.

    A role whose token is not a special token of the vocabulary is left out with a warning; `transformers`
    would add the token.
    """
    files = folder / FILE_NAME, folder / MAP_FILE_NAME
    config, named = (read_json(file) if file.is_file() else {} for file in files)
    with refuse_malformed(str(folder / FILE_NAME)):
        found = _read_roles(named) | _read_roles(config) | _read_others(config.get(_OTHERS))
        templates = _read_templates(config.get("chat_template"))
    templates |= _read_jinja(folder)
    missing = [name for name in found.values() if name is not None and name not in definition.named_tokens]
    if missing:
        logger.warning(
            "%s: names %.80r, which is not a special token of the vocabulary; its role is left out",
            folder / FILE_NAME,
            missing[0],
        )
    if definition.model.unknown_token is not None:
        found.pop("unk", None)  # the model decides it
    if found:
        definition = definition.with_roles(
            {role: name for role, name in found.items() if role in NAMES and name not in missing}
        )
    return replace(definition, chat_templates=templates) if templates else definition


def _read_roles(settings: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the roles of settings: a name each, an object with the name as its `content`, or null."""
    found = {role: settings[f"{role}_token"] for role in _ROLES if f"{role}_token" in settings}
    return {
        role: str(value["content"]) if isinstance(value, Mapping) else None if value is None else str(value)
        for role, value in found.items()
    }


def _read_others(settings: object) -> dict[str, str | None]:
    """Return the roles that have no key of their own."""
    if settings is None:
        return {}
    if not isinstance(settings, Mapping) or not all(
        name is None or isinstance(name, str) for name in settings.values()
    ):
        raise TypeError(f"{_OTHERS}={settings!r:.80} must be names of special tokens by role")
    return dict(settings)


def _read_templates(value: object) -> dict[str, str]:
    if value is None:
        return {}
    if isinstance(value, str):
        return {DEFAULT_TEMPLATE: value}
    if not isinstance(value, list):
        raise TypeError(f"chat_template={value!r:.80} must be a text, or a list of named ones")
    return {entry["name"]: entry["template"] for entry in value}


def _read_jinja(folder: Path) -> dict[str, str]:
    """Return the templates that have files of their own, which count before those in the settings."""
    files = {DEFAULT_TEMPLATE: folder / TEMPLATE_FILE_NAME}
    others = sorted((folder / TEMPLATE_FOLDER).glob("*.jinja"))
    if len(others) > MAX_TEMPLATES:
        raise FormatError(
            f"{folder / TEMPLATE_FOLDER}: has {len(others)} files, but at most {MAX_TEMPLATES} can be read"
        )
    files |= {file.stem: file for file in others}
    return {name: _text_of(file) for name, file in files.items() if file.is_file()}


def _text_of(file: Path) -> str:
    try:
        return read_file(file).decode()
    except UnicodeDecodeError as error:
        raise FormatError(f"{file}: is not UTF-8 at byte {error.start}; convert it first") from error
