"""Hugging Face's post-processors and our templates, which add special tokens around encoded texts.

Read: `TemplateProcessing`, `BertProcessing`, `RobertaProcessing`, `ByteLevel` (which changes no ids) and a
`Sequence` of those with one that adds tokens. Written: `TemplateProcessing`.
"""

from collections.abc import Mapping
from typing import Any

from tokmill.tokenizer.components.post_processors import Part, Template
from tokmill.tokenizer.core.errors import FormatError

Json = dict[str, Any]


def read(value: Json | None, special_tokens: Mapping[str, int], where: str) -> Template | None:
    """Read a post-processor."""
    adding = [step for step in _steps(value, where) if step["type"] != "ByteLevel"]
    if not adding:
        return None
    if len(adding) > 1:
        kinds = ", ".join(step["type"] for step in adding)
        raise FormatError(f"{where}: post_processor: {kinds} in a row; only one of them can be done")
    step = adding[0]
    match step["type"]:
        case "TemplateProcessing":
            template = _template(step, special_tokens, where)
        case "BertProcessing":
            template = _bert(*_tokens(step, special_tokens, where))
        case "RobertaProcessing":
            template = _roberta(*_tokens(step, special_tokens, where))
        case other:
            raise FormatError(
                f"{where}: post_processor.type={other!r:.200}, but only TemplateProcessing, BertProcessing, "
                "RobertaProcessing, ByteLevel and a Sequence of them can be done"
            )
    template.check(special_tokens)
    return template


def _steps(value: Json | None, where: str) -> list[Json]:
    if value is None:
        return []
    if value["type"] != "Sequence":
        return [value]
    steps: list[Json] = value["processors"]
    if any(step["type"] == "Sequence" for step in steps):
        raise FormatError(f"{where}: post_processor: a Sequence in a Sequence cannot be done; write one")
    return steps


def _template(step: Json, special_tokens: Mapping[str, int], where: str) -> Template:
    for name, token in step["special_tokens"].items():
        if token["ids"] != [special_tokens.get(token["id"])]:
            raise FormatError(
                f"{where}: post_processor: special token {name!r:.200} stands for {token['ids']!r:.200}, but "
                f"only one special token of that name can be done, here {special_tokens.get(name)}"
            )
    return Template(*(tuple(_part(part) for part in step[name]) for name in ("single", "pair")))


def _part(part: Json) -> Part:
    if "SpecialToken" in part:
        return Part("special", part["SpecialToken"]["id"], part["SpecialToken"]["type_id"])
    return Part("sequence", part["Sequence"]["id"], part["Sequence"]["type_id"])


def _tokens(step: Json, special_tokens: Mapping[str, int], where: str) -> tuple[str, str]:
    for key in ("cls", "sep"):
        name, token = step[key]
        if special_tokens.get(name) != token:
            raise FormatError(
                f"{where}: post_processor.{key}={step[key]!r:.200}, but {name!r:.200} is the special token "
                f"{special_tokens.get(name)}"
            )
    return step["cls"][0], step["sep"][0]


def _bert(first: str, last: str) -> Template:
    """`[CLS] A [SEP]` and `[CLS] A [SEP] B [SEP]`; B and its `[SEP]` have type 1."""
    single = Part("special", first), Part("sequence", "A"), Part("special", last)
    return Template(single, (*single, Part("sequence", "B", 1), Part("special", last, 1)))


def _roberta(first: str, last: str) -> Template:
    """`<s> A </s>` and `<s> A </s> </s> B </s>`, all of type 0."""
    single = Part("special", first), Part("sequence", "A"), Part("special", last)
    return Template(single, (*single, Part("special", last), Part("sequence", "B"), Part("special", last)))


def write(template: Template | None, special_tokens: Mapping[str, int]) -> Json | None:
    """Write a template as `TemplateProcessing`."""
    if template is None:
        return None
    kinds = {"special": "SpecialToken", "sequence": "Sequence"}
    return {
        "type": "TemplateProcessing",
        **{
            name: [{kinds[part.kind]: {"id": part.name, "type_id": part.type_id}} for part in parts]
            for name, parts in (("single", template.single), ("pair", template.pair))
        },
        "special_tokens": {
            name: {"id": name, "ids": [special_tokens[name]], "tokens": [name]} for name in template.names
        },
    }
