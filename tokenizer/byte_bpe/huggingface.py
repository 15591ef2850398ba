"""Byte-level BPE in a `tokenizer.json`: a BPE model in GPT-2's byte alphabet, with `ByteLevel` for the bytes.

Special tokens stand both in the vocabulary and among the added tokens; ids without a token have an entry that
nothing becomes.
"""

from collections.abc import Mapping
from typing import Any

from tokmill.tokenizer.byte_bpe.model import BytePairModel, model_of
from tokmill.tokenizer.components.pre_tokenizers import PreTokenizer
from tokmill.tokenizer.core.text import to_bytes, to_text
from tokmill.tokenizer.core.vocabulary import Vocabulary, texts_by_id
from tokmill.tokenizer.formats import metaspace
from tokmill.tokenizer.formats.models import bpe_model, check_settings, merges_of, vocab_by_text
from tokmill.tokenizer.formats.split_steps import (
    byte_level,
    check_chain,
    in_sequence,
    named,
    read_split,
    refusal,
    steps_of,
    write_chain,
)
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.splitting import SPLIT_PATTERNS

_UNUSED = "<unused {}>"
_STEPS = " and ByteLevel"

_MODEL_MUST_BE: dict[str, tuple[Any, ...]] = {
    "continuing_subword_prefix": (None, ""),  # first, since such files have an unknown token, too
    "dropout": (None, 0.0),
    "unk_token": (None,),
    "byte_fallback": (False,),
}


def reads(content: Mapping[str, Any]) -> bool:
    """Whether a file is of this family: BPE without marks for spaces, or at the end of words."""
    model = content["model"]
    is_pairs = bool(model.get("type", "BPE") == "BPE") and not model.get("end_of_word_suffix")
    return is_pairs and not metaspace.has(content.get("pre_tokenizer"))


def write(definition: Definition, *, exact: bool) -> dict[str, Any]:
    """Return the pre-tokenizer, the decoder and the model."""
    model, chain = model_of(definition), definition.pre_tokenizer.chain
    check_chain(chain)
    return {
        "pre_tokenizer": in_sequence(write_chain(chain, exact=exact)),
        "decoder": byte_level(use_regex=True),
        "model": bpe_model(
            _without_holes(vocab_by_text(definition, "huggingface", to_text), definition.vocab_size),
            [[to_text(left), to_text(right)] for left, right in model.pairs],
            ignore_merges=model.ignore_merges,
        ),
    }


def _without_holes(vocab: dict[str, int], vocab_size: int) -> dict[str, int]:
    """Give ids without a token an entry that no text can become, as a space is not in the byte alphabet.

    Some readers take the number of entries for the first id that is free, or refuse holes.
    """
    used = set(vocab.values())
    holes = [i for i in range(vocab_size) if i not in used]
    if len(holes) > len(vocab) or any(_UNUSED.format(i) in vocab for i in holes):
        return vocab
    return vocab | {_UNUSED.format(i): i for i in holes}


def read(
    content: Mapping[str, Any], special_tokens: Mapping[str, int], num_reserved: int, where: str
) -> tuple[BytePairModel, PreTokenizer]:
    """Read the model and the pre-tokenizer."""
    model = content["model"]
    _check_decoder(content.get("decoder"), where)
    check_settings(model, _MODEL_MUST_BE, "byte-level BPE here", where)
    texts = {
        i: text
        for i, text in texts_by_id(model["vocab"], special_tokens).items()
        if text != _UNUSED.format(i)
    }
    tokens = {i: to_bytes(text, where) for i, text in texts.items()}
    merges = [(to_bytes(left, where), to_bytes(right, where)) for left, right in merges_of(model)]
    vocabulary = Vocabulary.build(tokens, special_tokens, num_reserved)
    return (
        BytePairModel.build(vocabulary, merges, ignore_merges=bool(model.get("ignore_merges"))),
        _read_pre_tokenizer(content.get("pre_tokenizer"), where),
    )


def _check_decoder(value: dict[str, Any] | None, where: str) -> None:
    """Refuse a decoder that does more than to lay bytes end to end; a file may have none."""
    steps: list[Any] = [] if value is None else value.get("decoders", [value])
    kinds = [step.get("type") for step in steps]
    if kinds not in ([], ["ByteLevel"], ["ByteLevel", "Fuse"]):
        raise refusal(where, "decoder", value, "only ByteLevel can join the tokens of byte-level BPE")


def _read_pre_tokenizer(value: dict[str, Any] | None, where: str) -> PreTokenizer:
    steps = steps_of(value)
    if not steps or steps[-1]["type"] != "ByteLevel":
        raise refusal(
            where, "pre_tokenizer", [step["type"] for step in steps], "the last step must be ByteLevel"
        )
    if steps[-1].get("add_prefix_space"):
        raise refusal(where, "pre_tokenizer.add_prefix_space", True, "only False can be done")
    chain = [read_split(step, where, _STEPS) for step in steps[:-1]]
    if steps[-1].get("use_regex", True):
        chain.append(SPLIT_PATTERNS["gpt2"])
    if not chain:
        raise refusal(where, "pre_tokenizer", "ByteLevel", "without use_regex it needs a Split before it")
    return PreTokenizer(named(tuple(chain)))
