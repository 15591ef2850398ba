"""Hugging Face's format: one `tokenizer.json` for the `tokenizers` library.

Written here: special tokens as added tokens, the normalizer and the post-processor; the family writes the
    model, and the pre-tokenizer and decoder that go with it (`formats/huggingface.py` in its folder). Beside
    the file is `tokenizer_config.json` (`transformers`).
Read: the same parts, in all spellings of published files. A post-processor (which adds tokens such
    as BOS) becomes the tokenizer's template; one that cannot is refused by name.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from tokmill.tokenizer.components.absorbing import Side
from tokmill.tokenizer.components.decoders import Decoder
from tokmill.tokenizer.components.pre_tokenizers import PreTokenizer
from tokmill.tokenizer.core.malformed import refuse_malformed
from tokmill.tokenizer.core.vocabulary import count_reserved
from tokmill.tokenizer.formats import metaspace, post_processors, text_steps, transformers
from tokmill.tokenizer.formats.files import write_json
from tokmill.tokenizer.formats.joining import read_joining
from tokmill.tokenizer.formats.names import HUGGINGFACE
from tokmill.tokenizer.formats.split_steps import refusal
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.pipeline.families import FAMILIES, find_family


def write(definition: Definition, folder: Path, *, exact: bool = False) -> list[Path]:
    """Write the file into a folder, with `tokenizer_config.json` for `transformers`.

    Args:
        definition: the tokenizer.
        folder: the folder to write into.
        exact: whether to write the exact split instead of its published spelling; see `spellings`.

    Raises:
        FormatError: `tokenizers` would read the split pattern differently, or a token cannot be written.
    """
    part = find_family(definition.family).format_module("huggingface")
    definition = part.prepared(definition) if hasattr(part, "prepared") else definition
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            _added_token(name, i, definition.absorbing.get(name))
            for name, i in definition.special_tokens.items()
        ]
        + [_added_token(name, i, None) | {"special": False} for name, i in definition.kept_ids.items()],
        "normalizer": text_steps.write(definition.normalizer),
        "post_processor": post_processors.write(definition.post_processor, definition.special_tokens),
        **part.write(definition, exact=exact),
    }
    return [write_json(folder / HUGGINGFACE, content), *transformers.write(definition, folder)]


def _added_token(name: str, i: int, side: Side | None) -> dict[str, Any]:
    left, right = side in ("left", "both"), side in ("right", "both")
    flags = {"single_word": False, "lstrip": left, "rstrip": right, "normalized": False, "special": True}
    return {"id": i, "content": name, **flags}


def read_content(content: dict[str, Any], where: str) -> Definition:
    """Read the content of a file.

    Args:
        content: its JSON.
        where: its path, for messages.

    Raises:
        FormatError: it is broken, or has a feature that is not supported; the message names it.
        VocabularyError: the vocabulary breaks a law.
    """
    with refuse_malformed(where):
        return _read(content, where)


def _read(content: dict[str, Any], where: str) -> Definition:
    part = _part_for(content, where)
    loses_spaces = bool(content["model"].get("end_of_word_suffix"))
    steps, marks = text_steps.read(content.get("normalizer"), where, loses_spaces=loses_spaces), None
    marked = hasattr(part, "read_marked") and metaspace.has(content.get("pre_tokenizer"))
    if marked:
        marks, pattern = metaspace.read(content.get("pre_tokenizer"), steps, where)
    normalizer = text_steps.normalizer_of(steps, marks)
    added = content.get("added_tokens") or []
    kept = tuple(token["content"] for token in added if marked and _is_kept(token, content["model"]))
    added = [token for token in added if token["content"] not in kept]
    specials = _read_added_tokens(added, normalizer.name, where)
    given = content, specials, count_reserved(specials), where
    template = post_processors.read(content.get("post_processor"), specials, where)
    if marked:
        model, cuts = part.read_marked(*given, pattern)
        pre_tokenizer, decoder = PreTokenizer(cuts), read_joining(content.get("decoder"), model, where)
    else:
        model, pre_tokenizer = part.read(*given)
        decoder = "end_of_word" if loses_spaces else _read_decoder(content.get("decoder"))
    read = Definition(model, pre_tokenizer, normalizer, template, Decoder(decoder))
    return replace(read, absorbing=_read_sides(added), kept=kept)


def _is_kept(token: dict[str, Any], model: dict[str, Any]) -> bool:
    """Whether an added token is no special one, but one of the vocabulary that is always found in a text."""
    flags = ("special", "single_word", "lstrip", "rstrip", "normalized")
    vocab = model["vocab"]
    known = vocab.get(token["content"]) if isinstance(vocab, dict) else _place(vocab, token["id"])
    return not any(map(token.get, flags)) and known in (token["id"], token["content"])


def _place(vocab: list[Any], i: int) -> object:
    return vocab[i][0] if 0 <= i < len(vocab) else None


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
    for family in map(find_family, FAMILIES):
        if "huggingface" in family.formats:
            part = family.format_module("huggingface")
            if part.reads(content):
                return part
    raise refusal(
        where,
        "model.type",
        content["model"].get("type"),
        "only byte-level BPE, BPE over words and characters, WordLevel, Unigram and WordPiece can be read",
    )


def _read_added_tokens(added: list[dict[str, Any]], normalizer: str | None, where: str) -> dict[str, int]:
    for token in added:
        if token.get("single_word"):
            key = f"added_tokens: {token['content']!r}: single_word"
            raise refusal(where, key, True, "only False can be done")
        if not token.get("special") and token["content"].isspace():
            raise refusal(
                where,
                "added_tokens",
                token["content"],
                "white space that is cut out of ordinary text before it is split, as GPT-NeoX's is, cannot "
                "be done here",
            )
        if normalizer and token.get("normalized"):
            raise refusal(
                where,
                f"added_tokens: {token['content']!r}: normalized",
                True,
                f"special tokens are cut out before the text is normalized ({normalizer}) here",
            )
    return {token["content"]: token["id"] for token in added}
