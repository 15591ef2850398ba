"""What the families' models share in a `tokenizer.json`, and in files like it: settings, texts and merges."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokmill.tokenizer.core.errors import FormatError, refuse_malformed
from tokmill.tokenizer.formats import sidecar
from tokmill.tokenizer.formats.files import (
    GPT2_MERGES,
    GPT2_VOCAB,
    read_json,
    read_merges,
    refuse_json,
    write_file,
    write_merges,
)
from tokmill.tokenizer.formats.sidecar import SpecialTokens, Usage
from tokmill.tokenizer.formats.split_steps import refusal
from tokmill.tokenizer.pipeline.definition import Definition

Json = dict[str, Any]


def bpe_model(vocab: Mapping[str, int], merges: list[list[str]], **settings: Any) -> Json:
    """Return a `BPE` model with settings that are not the usual ones."""
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        **settings,
        "vocab": vocab,
        "merges": merges,
    }


def check_settings(
    model: Mapping[str, Any], allowed: Mapping[str, tuple[Any, ...]], name: str, where: str
) -> None:
    """Refuse settings of a model that a family does not have; the first value is that of files without it."""
    for key, values in allowed.items():
        if model.get(key, values[0]) not in values:
            raise refusal(where, f"model.{key}", model[key], f"{name} has {values[0]!r}")


def unknown_token(model: Mapping[str, Any], special_tokens: Mapping[str, int], where: str) -> str:
    """Return the unknown token, which must be special: without one, unknown text would vanish."""
    unknown: str | None = model.get("unk_token")
    if unknown is None or special_tokens.get(unknown) != model["vocab"].get(unknown):
        raise refusal(where, "model.unk_token", unknown, "it must be an added token, too")
    return unknown


def merges_of(model: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return a model's merges: pairs, or in older files two pieces with a space between them."""
    return [tuple(merge.split(" ") if isinstance(merge, str) else merge) for merge in model["merges"]]


def text_of(token: bytes, format_name: str = "huggingface") -> str:
    """Return a token as text."""
    try:
        return token.decode()
    except UnicodeDecodeError:
        raise FormatError(
            f"format={format_name!r} cannot express the token {token!r:.200}, which is not UTF-8; use "
            "format='tokmill'"
        ) from None


def vocab_by_text(definition: Definition, format_name: str, texts: Sequence[str]) -> dict[str, int]:
    """Return ids by token as text, given those of all ids; special tokens as they are."""
    named = [*texts]
    for name, token in definition.named_tokens.items():
        named[token] = name
    pairs = [(text, i) for i, (text, token) in enumerate(zip(named, definition.tokens, strict=True)) if token]
    vocab = dict(pairs)
    if len(vocab) < len(pairs):
        firsts = dict(reversed(pairs))
        text = next(text for text, i in pairs if firsts[text] != i)
        raise FormatError(
            f"format={format_name!r} cannot express the special token {text!r}, because the token "
            f"{definition.tokens[firsts[text]]!r} is written the same; rename the special token"
        )
    return vocab


def special_ids(
    vocab: Mapping[str, int],
    merges: Sequence[tuple[str, str]],
    given: SpecialTokens | None,
    may_be_special: Callable[[str], bool],
) -> dict[str, int]:
    """Return the ids of special tokens: the given ones, or those of texts that no merge makes."""
    if isinstance(given, Mapping):
        return dict(given)
    if given is not None:
        missing = [name for name in given if name not in vocab]
        if missing:
            raise FormatError(
                f"special_tokens: {missing[0]!r} is not in the vocabulary; pass {{name: id}} to add it"
            )
        return {name: vocab[name] for name in given}
    made = {left + right for left, right in merges}
    return {text: i for text, i in vocab.items() if text not in made and may_be_special(text)}


_SIDECAR = "vocab.sidecar.json"


def pair_paths(path: Path) -> tuple[Path, Path, Path]:
    """Return the paths of `vocab.json`, `merges.txt` and the sidecar, given either of the first two."""
    stem = path.name.removesuffix(GPT2_VOCAB).removesuffix(GPT2_MERGES)
    return path.with_name(stem + GPT2_VOCAB), path.with_name(stem + GPT2_MERGES), path.with_name(_SIDECAR)


def write_pairs(
    definition: Definition, folder: Path, vocab: Json, pairs: Sequence[tuple[str, str]], **how: Any
) -> list[Path]:
    """Write a `vocab.json`, in the order of the vocabulary, a `merges.txt` and a sidecar."""
    content = json.dumps(vocab, ensure_ascii=False, separators=(",", ":"))
    return [
        write_file(folder / GPT2_VOCAB, content.encode()),
        write_merges(folder / GPT2_MERGES, pairs),
        sidecar.write(definition, folder / _SIDECAR, **how),
    ]


def read_pairs(
    path: Path, usage: Usage, **how: Any
) -> tuple[dict[str, int], list[tuple[str, str]], Usage, str]:
    """Read a `vocab.json` and its `merges.txt`; return usage as the sidecar has it, and the place, too."""
    vocab_path, merges_path, beside = pair_paths(path)
    usage, vocab = usage.over(Usage.read(beside)), read_json(vocab_path)
    refuse_json(vocab_path, vocab, whole=False)
    with refuse_malformed(str(merges_path)):
        pairs = read_merges(merges_path, **how)
    return vocab, pairs, usage, str(vocab_path)
