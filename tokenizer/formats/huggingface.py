"""Hugging Face's format: one `tokenizer.json` for the `tokenizers` library.

Written here: special tokens as added tokens, the normalizer and the post-processor; the family writes the
    model, and the pre-tokenizer and decoder that go with it (`formats/huggingface.py` in its folder). Beside
    the file is `tokenizer_config.json` (`transformers`).
Read: the same parts, in all spellings of published files. A post-processor (which adds tokens such
    as BOS) becomes the tokenizer's template; one that cannot is refused by name.
"""

from pathlib import Path
from typing import Any

from tokmill.tokenizer.components.decoders import Decoder
from tokmill.tokenizer.components.normalizers import Normalizer
from tokmill.tokenizer.core.errors import FormatError
from tokmill.tokenizer.core.malformed import refuse_malformed
from tokmill.tokenizer.core.vocabulary import count_reserved
from tokmill.tokenizer.formats import normalizers, post_processors, transformers
from tokmill.tokenizer.formats.files import write_json
from tokmill.tokenizer.formats.names import HUGGINGFACE
from tokmill.tokenizer.formats.split_steps import refusal
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.pipeline.families import FAMILIES, find_family
from tokmill.tokenizer.pipeline.model import TextNormalizer


def write(definition: Definition, folder: Path, *, exact: bool = False) -> list[Path]:
    """Write the file into a folder, with `tokenizer_config.json` for `transformers`.

    Args:
        definition: the tokenizer.
        folder: the folder to write into.
        exact: whether to write the exact split instead of its published spelling; see `spellings`.

    Raises:
        FormatError: `tokenizers` would read the split pattern differently, or a token cannot be written.
    """
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added_token(name, i) for name, i in definition.special_tokens.items()],
        "normalizer": _write_normalizer(definition.normalizer),
        "post_processor": post_processors.write(definition.post_processor, definition.special_tokens),
        **find_family(definition.family).format_module("huggingface").write(definition, exact=exact),
    }
    return [write_json(folder / HUGGINGFACE, content), *transformers.write(definition, folder)]


def _added_token(name: str, i: int) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"id": i, "content": name, **flags}


def _write_normalizer(normalizer: TextNormalizer) -> dict[str, Any] | None:
    if not isinstance(normalizer, Normalizer):
        raise FormatError(
            f"format='huggingface' cannot express normalizer={normalizer.name!r}, which treats white space "
            "in a way of its own; use format='sentencepiece' or 'tokmill'"
        )
    return normalizers.write(normalizer.name)


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
    normalizer = normalizers.read(content.get("normalizer"), where, loses_spaces)
    added = content.get("added_tokens") or []
    specials = _read_added_tokens(added, normalizer, where)
    num_reserved = count_reserved(specials)
    model, pre_tokenizer = part.read(content, specials, num_reserved, where)
    return Definition(
        model,
        pre_tokenizer,
        Normalizer(normalizer),
        post_processors.read(content.get("post_processor"), specials, where),
        Decoder("end_of_word" if loses_spaces else _read_decoder(content.get("decoder"))),
    )


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
        "only byte-level BPE, BPE over words, WordLevel, Unigram and WordPiece can be read",
    )


def _read_added_tokens(added: list[dict[str, Any]], normalizer: str | None, where: str) -> dict[str, int]:
    for token in added:
        for flag in ("single_word", "lstrip", "rstrip"):
            if token.get(flag):
                raise refusal(
                    where, f"added_tokens: {token['content']!r}: {flag}", True, "only False can be done"
                )
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
