"""Hugging Face's format: one `tokenizer.json` for the `tokenizers` library, and `tokenizer_config.json`.

Here: special and added tokens, the normalizer, and the post-processor, in all spellings of published files;
it becomes the tokenizer's template, or is refused by name. The family does the model, and the pre-tokenizer
and decoder that go with it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokmill.tokenizer.components.decoders import Decoder
from tokmill.tokenizer.components.post_processors import Part, Template
from tokmill.tokenizer.components.specials import Side
from tokmill.tokenizer.core.errors import FormatError, refuse_malformed
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.formats import metaspace, normalizers, transformers
from tokmill.tokenizer.formats.files import HUGGINGFACE, write_json
from tokmill.tokenizer.formats.metaspace import read_joining
from tokmill.tokenizer.formats.models import JsonFile
from tokmill.tokenizer.formats.split_steps import refusal
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.pipeline.families import find_family, format_modules
from tokmill.tokenizer.splitting.splitter import PreTokenizer

Json = dict[str, Any]


def read_template(value: Json | None, special_tokens: Mapping[str, int], where: str) -> Template | None:
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
        raise FormatError(
            f"{where}: post_processor: a Sequence in a Sequence cannot be done; write_template one"
        )
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


def write_template(template: Template | None, special_tokens: Mapping[str, int]) -> Json | None:
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


def write(definition: Definition, folder: Path, *, exact: bool = False) -> list[Path]:
    """Write the file into a folder, with `tokenizer_config.json` for `transformers`."""
    part = find_family(definition.family).format_module("huggingface")
    definition = part.prepared(definition) if hasattr(part, "prepared") else definition
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _write_added_tokens(definition),
        "normalizer": normalizers.write(definition.normalizer),
        "post_processor": write_template(definition.post_processor, definition.named_tokens),
        **part.write(_with_names(definition), exact=exact),
    }
    _leave_out_last(content["model"], definition)
    return [write_json(folder / HUGGINGFACE, content), *transformers.write(definition, folder)]


def _write_added_tokens(definition: Definition) -> list[dict[str, Any]]:
    """Return special and added tokens, by id, so that `tokenizers` gives them the ids that they have."""
    ids = {**definition.special_tokens, **definition.added_ids}
    late, written = {*definition.normalized_tokens}, list[dict[str, Any]]()
    for name, i in sorted(ids.items(), key=lambda item: item[1]):
        side = definition.absorbing.get(name)
        left, right = side in ("left", "both"), side in ("right", "both")
        flags = {"single_word": False, "lstrip": left, "rstrip": right, "normalized": name in late}
        special = name in definition.special_tokens
        written.append({"id": i, "content": name, **flags, "special": special})
    return written


def _leave_out_last(model: dict[str, Any], definition: Definition) -> None:
    """Leave the last tokens out of the model's vocabulary that it does not know, if some are added ones.

    What is there may be a piece of text to `tokenizers`.
    """
    names = {i: name for name, i in definition.named_tokens.items() if name != definition.model.unknown_token}
    vocab, last = model["vocab"], definition.vocab_size - 1
    while definition.added_tokens and last in names:
        names.pop(last)
        last -= 1
    if isinstance(vocab, list):
        del vocab[last + 1 :]
    else:
        model["vocab"] = {text: i for text, i in vocab.items() if i <= last}


def _with_names(definition: Definition) -> Definition:
    """Return the tokenizer with the tokens' own texts where it has the normalized ones."""
    if not definition.normalized_tokens:
        return definition
    names = {i: name.encode() for name, i in definition.named_tokens.items()}
    model = definition.model.with_vocabulary(definition.vocabulary.with_bytes(names))
    return replace(definition, model=model, normalized_tokens=())


def read_content(content: dict[str, Any], where: str) -> Definition:
    """Read the content of a file."""
    with refuse_malformed(where):
        return _read(content, where)


def _read(content: dict[str, Any], where: str) -> Definition:
    part = _part_for(content, where)
    loses_spaces = bool(content["model"].get("end_of_word_suffix"))
    steps, marks = normalizers.read(content.get("normalizer"), where, loses_spaces=loses_spaces), None
    marked = hasattr(part, "read_marked") and metaspace.has(content.get("pre_tokenizer"))
    if marked:
        marks, pattern = metaspace.read(content.get("pre_tokenizer"), steps, where)
    normalizer = normalizers.normalizer_of(steps, marks)
    tokens = content.get("added_tokens") or []
    added = tuple(token["content"] for token in tokens if not token.get("special"))
    known = _of_model(added, content["model"])
    late = _normalized_tokens(tokens, where, normalizes=bool(steps))
    ids = {token["content"]: token["id"] for token in tokens}
    specials = {name: i for name, i in ids.items() if name not in known}
    file = JsonFile(content, specials, where)
    template = read_template(content.get("post_processor"), specials, where)
    if marked:
        model, cuts = part.read_marked(file, pattern)
        pre_tokenizer, decoder = PreTokenizer(cuts), read_joining(content.get("decoder"), model, where)
    else:
        model, pre_tokenizer = part.read(file)
        decoder = "end_of_word" if loses_spaces else _read_decoder(content.get("decoder"))
    _check_ids(model.vocabulary, {name: ids[name] for name in known}, where)
    read = Definition(model, pre_tokenizer, normalizer, template, Decoder(decoder))
    return replace(read, absorbing=_read_sides(tokens), added_tokens=added, normalized_tokens=late)


def _check_ids(vocabulary: Vocabulary, ids: dict[str, int], where: str) -> None:
    """Refuse added tokens whose text is how the model spells other bytes, as `é` is in GPT-2's alphabet."""
    for name, i in ids.items():
        if vocabulary.ids.get(name.encode()) != i:
            rule = f"to the model, this text spells the token {vocabulary.tokens[i]!r}"
            raise refusal(where, f"added_tokens: {name!r}: id", i, rule)


def _of_model(added: Sequence[str], model: dict[str, Any]) -> set[str]:
    """Return the added tokens that the model knows; BPE knows single characters, and what is merged."""
    vocab, unknown = model["vocab"], model.get("unk_id")
    if isinstance(vocab, list):
        return {*added} & {piece for i, (piece, _) in enumerate(vocab) if i != unknown}
    known: set[str] = vocab.keys() & {*added} - {model.get("unk_token")}
    if not known or "merges" not in model:
        return known
    pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
    merged = {text for pair in pairs for text in (*pair, "".join(pair))}
    return {text for text in known if text in merged or (len(text) == 1 and text.isprintable())}


def _read_sides(added: list[dict[str, Any]]) -> dict[str, Side]:
    """Return on which sides added tokens take white space."""
    sides: dict[tuple[bool, bool], Side] = {
        (True, False): "left",
        (False, True): "right",
        (True, True): "both",
    }
    found = {token["content"]: (bool(token.get("lstrip")), bool(token.get("rstrip"))) for token in added}
    return {name: sides[flags] for name, flags in found.items() if any(flags)}


def _read_decoder(value: dict[str, Any] | None) -> str:
    """Return the name of the decoder; a family refuses those that are not its own."""
    if value is None or value.get("type") != "WordPiece":
        return "fuse"
    return "wordpiece_cleanup" if value.get("cleanup", True) else "wordpiece"


def _part_for(content: dict[str, Any], where: str) -> Any:
    """Return the module of the first family that reads such a file."""
    for part in format_modules("huggingface"):
        if part.reads(content):
            return part
    raise refusal(
        where,
        "model.type",
        content["model"].get("type"),
        "only byte-level BPE, BPE over words and characters, WordLevel, Unigram and WordPiece can be read",
    )


def _normalized_tokens(tokens: list[dict[str, Any]], where: str, *, normalizes: bool) -> tuple[str, ...]:
    """Return the tokens that are looked for after the others, in normalized text.

    Where no text is normalized, all are looked for at once, unless one could be cut by another.
    """
    for token in tokens:
        if token.get("single_word"):
            key = f"added_tokens: {token['content']!r}: single_word"
            raise refusal(where, key, True, "only False can be done")
    late = [token for token in tokens if token.get("normalized")]
    early = [token for token in tokens if not token.get("normalized")]
    if not late or not (normalizes or _may_overlap(early, late)):
        return ()
    return tuple(token["content"] for token in late)


def _may_overlap(early: list[dict[str, Any]], late: list[dict[str, Any]]) -> bool:
    """Whether some text has tokens of both kinds that share characters, or white space that they take."""
    if any(token.get("lstrip") or token.get("rstrip") for token in (*early, *late)):
        return bool(early)
    first, then = ([token["content"] for token in tokens] for tokens in (early, late))
    if any(a in b or b in a for a in first for b in then):
        return True
    most = min(max(map(len, names), default=0) for names in (first, then))
    return any(_meet(*names, i) for i in range(1, most) for names in ((first, then), (then, first)))


def _meet(ends: list[str], begins: list[str], number: int) -> bool:
    """Whether the last characters of a string, so many, are the first ones of another."""
    return not {name[-number:] for name in ends}.isdisjoint(name[:number] for name in begins)
