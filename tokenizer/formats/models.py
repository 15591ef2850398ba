"""What the families' models share in a `tokenizer.json`, and in files like it: settings, texts and merges."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import orjson

from tokmill.tokenizer.core.errors import FormatError, cannot_express, refuse_malformed
from tokmill.tokenizer.core.vocabulary import Vocabulary, count_reserved, texts_by_id
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
from tokmill.tokenizer.formats.split_steps import named, read_split, refusal, steps_of
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.splitting.splitter import PreTokenizer

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


@dataclass(frozen=True)
class JsonFile:
    """A `tokenizer.json`, of which a family reads the model and the pre-tokenizer.

    Attributes:
        content: what the file holds.
        specials: the special tokens' ids.
        where: the file, for errors.
    """

    content: Json
    specials: Mapping[str, int]
    where: str

    @property
    def model(self) -> Json:
        """What the file says of the model."""
        model: Json = self.content["model"]
        return model

    @property
    def steps(self) -> list[Json]:
        """The steps of the pre-tokenizer."""
        return steps_of(self.content.get("pre_tokenizer"))

    def refusal(self, key: str, value: object, rule: str) -> FormatError:
        """Return the error for a value that cannot be read."""
        return refusal(self.where, key, value, rule)

    def check_decoder(self, kind: str, rule: str, **settings: object) -> None:
        """Refuse a decoder that is of another kind, or has other settings."""
        value = self.content.get("decoder") or {}
        found = value.get("type"), *(value.get(key, usual) for key, usual in settings.items())
        if found != (kind, *settings.values()):
            raise self.refusal("decoder", self.content.get("decoder"), rule)

    def check_bpe(self, name: str, **allowed: tuple[Any, ...]) -> None:
        """Refuse settings of a `BPE` model that a family does not have; the first value is the usual one."""
        usual: dict[str, tuple[Any, ...]] = {
            "continuing_subword_prefix": (None, ""),
            "dropout": (None, 0.0),
            "ignore_merges": (False,),
        }
        for key, values in (usual | allowed).items():
            if self.model.get(key, values[0]) not in values:
                raise self.refusal(f"model.{key}", self.model[key], f"{name} has {values[0]!r}")

    def unknown(self) -> str:
        """Return the unknown token, which must be special: without one, unknown text would vanish."""
        unknown: str | None = self.model.get("unk_token")
        if unknown is None or self.specials.get(unknown) != self.model["vocab"].get(unknown):
            raise self.refusal("model.unk_token", unknown, "it must be an added token, too")
        return unknown

    def merges(self) -> list[tuple[str, str]]:
        """Return the merges: pairs, or in older files two pieces with a space between them."""
        rows = (merge.split(" ") if isinstance(merge, str) else merge for merge in self.model["merges"])
        return [(left, right) for left, right in rows]

    def vocabulary(
        self, read: Callable[[str], bytes] = str.encode, byte_ids: Mapping[int, bytes] = MappingProxyType({})
    ) -> Vocabulary:
        """Return the vocabulary of a model that has ids by text."""
        texts = texts_by_id(self.model["vocab"], self.specials)
        return self.build({i: byte_ids[i] if i in byte_ids else read(texts[i]) for i in texts}, byte_ids)

    def build(self, tokens: Mapping[int, bytes], byte_ids: Iterable[int] = ()) -> Vocabulary:
        """Put tokens and the special ones together."""
        return Vocabulary.build(tokens, self.specials, count_reserved(self.specials), byte_ids)

    def pre_tokenizer(self, steps: Sequence[Json]) -> PreTokenizer:
        """Read steps that isolate what they match."""
        return PreTokenizer(named(tuple(read_split(step, self.where) for step in steps)))


def text_of(token: bytes, format_name: str = "huggingface") -> str:
    """Return a token as text."""
    try:
        return token.decode()
    except UnicodeDecodeError:
        raise cannot_express(format_name, f"the token {token!r:.200}, which is not UTF-8") from None


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
    return [
        write_file(folder / GPT2_VOCAB, orjson.dumps(vocab)),
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
