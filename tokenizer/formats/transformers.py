"""`tokenizer_config.json`: the settings of `transformers.AutoTokenizer` that `tokenizer.json` lacks.

It names the class that reads any `tokenizer.json`, keeps decoding from tidying spaces up, and lists the
special tokens. Which of them begins a text, ends it or pads is said where a name is one that published models
use for nothing else, or where the tokenizer's template puts it.
"""

from pathlib import Path
from types import MappingProxyType
from typing import Any

from tokmill.tokenizer.formats.files import write_json
from tokmill.tokenizer.pipeline.definition import Definition

FILE_NAME = "tokenizer_config.json"

_ROLES: MappingProxyType[str, tuple[str, ...]] = MappingProxyType(
    {
        "bos_token": ("<|begin_of_text|>", "<|begin▁of▁sentence|>", "<s>", "<bos>", "[BOS]"),
        "eos_token": ("<|endoftext|>", "<|end_of_text|>", "<|end▁of▁sentence|>", "</s>", "<eos>", "[EOS]"),
        "pad_token": ("<|pad|>", "<|padding|>", "<|finetune_right_pad_id|>", "<pad>", "[PAD]"),
    }
)


def write(definition: Definition, folder: Path) -> Path:
    """Write the file into a folder."""
    content: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        **_roles(definition),
    }
    unknown = definition.model.unknown_token
    if unknown is not None:
        content["unk_token"] = unknown
    named = [name for name in definition.special_tokens if name not in content.values()]
    if named:
        content["additional_special_tokens"] = named
    return write_json(folder / FILE_NAME, content)


def _roles(definition: Definition) -> dict[str, str]:
    """Return the special tokens whose part is known."""
    found = {
        role: next((name for name in names if name in definition.special_tokens), None)
        for role, names in _ROLES.items()
    }
    template = definition.post_processor
    before, behind = template.around() if template is not None else ([], [])
    for role, names in (("bos_token", before[:1]), ("eos_token", behind[-1:])):
        found[role] = next(iter(names), found[role])
    return {role: name for role, name in found.items() if name is not None}
