"""BPE over words as `vocab.json` (ids by token) and `merges.txt` (one merge per line), as of GPT-1 and CLIP.

A sidecar says how text is split and which tokens are special. Without one, a vocabulary with all 256 bytes of
GPT-2's alphabet, with and without `</w>`, is read as CLIP's (letters are bytes, text is lowercased and stands
between its two special tokens), any other as GPT-1's. Sources: openai/finetune-transformer-lm
`text_utils.py`; openai/CLIP `simple_tokenizer.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokmill.tokenizer.components.decoders import ENDS
from tokmill.tokenizer.components.post_processors import Part, Template
from tokmill.tokenizer.core.errors import FormatError, refuse_malformed
from tokmill.tokenizer.core.text import CHARACTERS
from tokmill.tokenizer.core.vocabulary import Vocabulary, texts_by_id
from tokmill.tokenizer.formats import sidecar
from tokmill.tokenizer.formats.files import (
    GPT2_MERGES,
    GPT2_VOCAB,
    read_json,
    read_merges,
    refuse_json,
    write_merges,
)
from tokmill.tokenizer.formats.models import special_ids, vocab_file
from tokmill.tokenizer.formats.sidecar import Usage
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.word_bpe.huggingface import read_piece, spelled_pairs, spelled_vocab
from tokmill.tokenizer.word_bpe.model import WordPairModel, model_of

_SIDECAR = "vocab.sidecar.json"
_SUFFIX = ENDS.decode()
_UNKNOWN = ("<unk>", "[UNK]")
_START, _END = "<|startoftext|>", "<|endoftext|>"
_CLIP = Usage("clip", "pattern", "nfc+lowercase")
_GPT1 = Usage("bert", "pattern", "bert_clean+cjk_spaces+strip_nonspacing+lowercase")


def recognizes(path: Path) -> bool:
    """Whether a file is of this family: its sidecar says so, or letters with `</w>` are tokens."""
    vocab, _, beside = _places(path)
    if beside.exists():
        return Usage.read(beside).rules is not None
    return any(text.endswith(_SUFFIX) and len(text) == len(_SUFFIX) + 1 for text in read_json(vocab))


def _places(path: Path) -> tuple[Path, Path, Path]:
    """Return the paths of the vocabulary, the merges and the sidecar, given either of the first two."""
    stem = path.name.removesuffix(GPT2_VOCAB).removesuffix(GPT2_MERGES)
    return path.with_name(stem + GPT2_VOCAB), path.with_name(stem + GPT2_MERGES), path.with_name(_SIDECAR)


def write(definition: Definition, folder: Path) -> list[Path]:
    """Write the two files and the sidecar into a folder."""
    model, vocab = model_of(definition), spelled_vocab(definition, "gpt2")
    pairs = spelled_pairs(model)
    for text in (text for pair in pairs for text in pair):
        if text.strip(" \n\r") != text or " " in text or "\n" in text:
            raise FormatError(
                f"format='gpt2' cannot express the piece {text!r:.200}, since a space divides the pieces of "
                "a line; use format='tokmill'"
            )
    rules = {name: value for name, value in model.spec().items() if name != "merges"}
    return [
        vocab_file(folder, vocab),
        write_merges(folder / GPT2_MERGES, pairs),
        sidecar.write(definition, folder / _SIDECAR, ignore_merges=False, rules=rules),
    ]


def read(path: Path, usage: Usage) -> Definition:
    """Read the two files."""
    vocab_path, merges_path, beside = _places(path)
    usage = usage.over(Usage.read(beside))
    vocab = read_json(vocab_path)
    refuse_json(vocab_path, vocab, whole=False)
    with refuse_malformed(str(merges_path)):
        pairs = read_merges(merges_path, errors="strict")
    with refuse_malformed(str(vocab_path)):
        return _definition(vocab, pairs, usage, str(vocab_path))


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
