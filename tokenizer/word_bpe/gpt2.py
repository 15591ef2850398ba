"""BPE over words as `vocab.json` (ids by token) and `merges.txt` (one merge per line), as of GPT-1 and CLIP.

A sidecar says how text is split and which tokens are special. Without one, a vocabulary with all 256 bytes of
GPT-2's alphabet, with and without `</w>`, is read as CLIP's (letters are bytes, text is lowercased and stands
between its two special tokens), any other as GPT-1's. Sources: openai/finetune-transformer-lm
`text_utils.py`; openai/CLIP `simple_tokenizer.py`.

subword-nmt's codes have a header with the version, and one merge per line; there is no vocabulary. Version
0.2 has the mark attached to the last letter, 0.1 apart. Ids: `<unk>` is 0, then the letters of the merges by
their bytes, joined pieces in order, special tokens that are passed. To write codes, save as `gpt2`: its
`merges.txt` is such a file. Source: rsennrich/subword-nmt `learn_bpe.py`, `apply_bpe.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tokmill.tokenizer.components.decoders import ENDS
from tokmill.tokenizer.components.post_processors import Part, Template
from tokmill.tokenizer.core.errors import FormatError, cannot_express, refuse_malformed
from tokmill.tokenizer.core.text import CHARACTERS
from tokmill.tokenizer.core.vocabulary import Vocabulary, texts_by_id
from tokmill.tokenizer.formats.files import (
    head_of,
    is_codes,
    read_json,
    read_merges,
)
from tokmill.tokenizer.formats.models import pair_paths, read_pairs, special_ids, write_pairs
from tokmill.tokenizer.formats.sidecar import SpecialTokens, Usage
from tokmill.tokenizer.formats.split_steps import WORDS
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.reference.word_bpe import letters_of
from tokmill.tokenizer.word_bpe.huggingface import read_piece, spelled_pairs, spelled_vocab
from tokmill.tokenizer.word_bpe.model import WordPairModel, model_of

_SUFFIX = ENDS.decode()
_UNKNOWN = ("<unk>", "[UNK]")
_START, _END = "<|startoftext|>", "<|endoftext|>"
_CLIP = Usage("clip", "pattern", "nfc+lowercase")
_GPT1 = Usage("bert", "pattern", "bert_clean+cjk_spaces+strip_nonspacing+lowercase")


def recognizes(path: Path) -> bool:
    """Whether a file is of this family: its sidecar says so, or letters with `</w>` are tokens."""
    vocab, _, beside = pair_paths(path)
    if beside.exists():
        return Usage.read(beside).rules is not None
    return any(text.endswith(_SUFFIX) and len(text) == len(_SUFFIX) + 1 for text in read_json(vocab))


def write(definition: Definition, folder: Path) -> list[Path]:
    """Write the two files and the sidecar into a folder."""
    model, vocab = model_of(definition), spelled_vocab(definition, "gpt2")
    pairs = spelled_pairs(model)
    for text in (text for pair in pairs for text in pair):
        if text.strip(" \n\r") != text or " " in text or "\n" in text:
            raise cannot_express("gpt2", f"the piece {text!r:.200}: a space divides the pieces of a line")
    rules = {name: value for name, value in model.spec().items() if name != "merges"}
    return write_pairs(definition, folder, vocab, pairs, ignore_merges=False, rules=rules)


def read(path: Path, usage: Usage) -> Definition:
    """Read the two files."""
    vocab, pairs, usage, where = read_pairs(path, usage, errors="strict")
    with refuse_malformed(where):
        return _definition(vocab, pairs, usage, where)


def _definition(
    vocab: dict[str, int], pairs: Sequence[tuple[str, str]], usage: Usage, where: str
) -> Definition:
    specials = special_ids(
        vocab, pairs, usage.special_tokens, lambda text: len(text.removesuffix(_SUFFIX)) > 1
    )
    is_clip = all(c in vocab and c + _SUFFIX in vocab for c in CHARACTERS.values())
    rules = usage.rules or _rules(specials, is_clip, where)
    if usage.rules is None:
        usage = usage.over(replace(_CLIP, template=_template(specials)) if is_clip else _GPT1)
    by_bytes = rules["letters"] == "bytes"
    texts = texts_by_id({text: i for text, i in vocab.items() if text not in specials}, {})
    tokens = {i: read_piece(text, by_bytes, where) for i, text in texts.items()}
    model = WordPairModel.build(
        Vocabulary.build(tokens, specials, usage.num_reserved or 0),
        [(read_piece(left, by_bytes, where), read_piece(right, by_bytes, where)) for left, right in pairs],
        **rules,
    )
    return Definition.compose(
        model,
        **usage.parts("bert"),
        decoder="end_of_word",
    )


def _rules(specials: Mapping[str, int], is_clip: bool, where: str) -> dict[str, Any]:
    """Return the model's rules for files without a sidecar."""
    if is_clip:
        return {"unknown_token": None, "letters": "bytes"}
    unknown = next((name for name in _UNKNOWN if name in specials), None)
    if unknown is None:
        raise FormatError(
            f"{where}: has neither {' nor '.join(_UNKNOWN)}, so that unknown letters have no token; add one"
        )
    return {"unknown_token": unknown, "letters": "characters"}


def _template(specials: Mapping[str, int]) -> Template | None:
    """Return CLIP's template, if there are its tokens: text between the start and the end."""
    if not {_START, _END} <= set(specials):
        return None
    single = Part("special", _START), Part("sequence", "A"), Part("special", _END)
    return Template(single, (*single, Part("special", _END), Part("sequence", "B"), Part("special", _END)))


_CODES_UNKNOWN = "<unk>"
_APART, _ATTACHED = b"#version: 0.1", b"#version: 0.2"


def _recognizes_codes(path: Path) -> bool:
    """Whether a file has the header of codes, and is not the part of another format."""
    return is_codes(path.name, head_of(path))


def _read_codes(path: Path, usage: Usage) -> Definition:
    """Read codes."""
    version = head_of(path).split(b"\n", 1)[0].strip()
    if version not in (_APART, _ATTACHED):
        raise FormatError(
            f"{path}: the version of these codes is {version!r:.80}, but only 0.1 and 0.2 are known"
        )
    with refuse_malformed(str(path)):
        pairs = [(left.encode(), right.encode()) for left, right in read_merges(path, errors="strict")]
        apart = version == _APART
        pieces = _code_pieces(pairs, apart)
        model = WordPairModel.build(
            Vocabulary.build(
                dict(enumerate(pieces, start=1)), _code_specials(usage.special_tokens, len(pieces))
            ),
            pairs,
            unknown_token=_CODES_UNKNOWN,
            end_of_word="apart" if apart else "attached",
        )
        return Definition.compose(
            model,
            **usage.parts(WORDS),
            decoder="end_of_word",
        )


def _code_specials(given: SpecialTokens | None, num_pieces: int) -> dict[str, int]:
    """Return ids of special tokens: those that are given, or else the ones after the pieces."""
    if isinstance(given, Mapping):
        return {_CODES_UNKNOWN: 0, **given}
    names = [name for name in given or () if name != _CODES_UNKNOWN]
    return {_CODES_UNKNOWN: 0} | {name: 1 + num_pieces + i for i, name in enumerate(names)}


def _code_pieces(pairs: Sequence[tuple[bytes, bytes]], apart: bool) -> list[bytes]:
    """Return the letters, and then all pieces of merges in their order."""
    stems = {part.removesuffix(ENDS) for pair in pairs for part in pair}
    letters = sorted({letter for stem in stems if stem for letter in letters_of(stem, ends=b"")})
    endings = [ENDS] if apart else [letter + ENDS for letter in letters]
    parts = (piece for left, right in pairs for piece in (left, right, left + right))
    return list(dict.fromkeys([*letters, *endings, *parts]))


CODES = SimpleNamespace(recognizes=_recognizes_codes, read=_read_codes)
