"""GPT-2's format: `vocab.json` (ids by token) and `merges.txt` (one pair per line), in GPT-2's byte alphabet.

A sidecar says how text is split and which tokens are special. Without one, the split pattern is GPT-2's, and
the special tokens are those that are not a byte and that no merge makes. They stand there as their own text.
Source: openai/gpt-2 `encoder.py`.
"""

from pathlib import Path

from tokmill.tokenizer.byte_bpe.model import define, model_of
from tokmill.tokenizer.core.errors import FormatError, refuse_malformed
from tokmill.tokenizer.core.text import to_bytes, to_text
from tokmill.tokenizer.core.vocabulary import texts_by_id
from tokmill.tokenizer.formats import sidecar
from tokmill.tokenizer.formats.files import (
    GPT2_MERGES,
    GPT2_VOCAB,
    read_json,
    read_merges,
    refuse_json,
    write_merges,
)
from tokmill.tokenizer.formats.models import special_ids, vocab_by_text, vocab_file
from tokmill.tokenizer.formats.sidecar import Usage
from tokmill.tokenizer.pipeline.definition import Definition

_SIDECAR = "vocab.sidecar.json"


def write(definition: Definition, folder: Path) -> list[Path]:
    """Write the two files and the sidecar into a folder."""
    model = model_of(definition)
    return [
        vocab_file(folder, vocab_by_text(definition, "gpt2", to_text)),
        write_merges(folder / GPT2_MERGES, [(to_text(left), to_text(right)) for left, right in model.pairs]),
        sidecar.write(definition, folder / _SIDECAR, ignore_merges=model.ignore_merges),
    ]


def read(path: Path, usage: Usage) -> Definition:
    """Read the two files."""
    stem = path.name.removesuffix(GPT2_VOCAB).removesuffix(GPT2_MERGES)
    vocab_path, merges_path, beside = (
        path.with_name(stem + name) for name in (GPT2_VOCAB, GPT2_MERGES, _SIDECAR)
    )
    usage = usage.over(Usage.read(beside))
    vocab = read_json(vocab_path)
    refuse_json(vocab_path, vocab, whole=False)
    pairs = read_merges(merges_path, to_bytes)
    with refuse_malformed(str(vocab_path)):
        return _definition(vocab, pairs, usage, str(vocab_path))


def _definition(vocab: dict[str, int], pairs: list[tuple[str, str]], usage: Usage, where: str) -> Definition:
    specials = special_ids(vocab, pairs, usage.special_tokens, _may_be_special)
    ordinary = {text: i for text, i in vocab.items() if text not in specials}
    tokens = {i: to_bytes(text, where) for i, text in texts_by_id(ordinary, {}).items()}
    return define(
        tokens,
        [(to_bytes(left), to_bytes(right)) for left, right in pairs],
        specials,
        ignore_merges=bool(usage.ignore_merges),
        num_reserved=usage.num_reserved or 0,
        **usage.parts("gpt2"),
    )


def _may_be_special(text: str) -> bool:
    """Whether a text is not a byte in the alphabet."""
    try:
        to_bytes(text)
    except FormatError:
        return True
    return len(text) != 1
