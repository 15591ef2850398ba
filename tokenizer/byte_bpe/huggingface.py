"""Byte-level BPE in a `tokenizer.json`: a BPE model in GPT-2's byte alphabet, with `ByteLevel` for the bytes.

Special tokens stand both in the vocabulary and among the added tokens; ids without a token have an entry that
nothing becomes.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from tokmill.tokenizer.byte_bpe.model import BytePairModel, model_of, read_merges
from tokmill.tokenizer.core.text import to_byte_pairs, to_byte_strings, to_bytes, to_texts
from tokmill.tokenizer.core.vocabulary import Vocabulary, count_reserved, texts_by_id
from tokmill.tokenizer.formats import metaspace
from tokmill.tokenizer.formats.gguf_section import SPECIAL_KINDS, Reading, Section
from tokmill.tokenizer.formats.model_file import PieceKind
from tokmill.tokenizer.formats.models import JsonFile, bpe_model, vocab_by_text
from tokmill.tokenizer.formats.split_steps import (
    byte_level,
    check_chain,
    in_sequence,
    named,
    read_split,
    write_chain,
)
from tokmill.tokenizer.kernels.pair_tables import MAX_MERGES
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.splitting import SPLIT_PATTERNS, PatternLike
from tokmill.tokenizer.splitting.splitter import PreTokenizer

_UNUSED = "<unused {}>"


def reads(content: Mapping[str, Any]) -> bool:
    """Whether a file is of this family: BPE without marks for spaces, or at the end of words."""
    model = content["model"]
    is_pairs = bool(model.get("type", "BPE") == "BPE") and not model.get("end_of_word_suffix")
    return is_pairs and not metaspace.has(content.get("pre_tokenizer"))


def write(definition: Definition, *, exact: bool) -> dict[str, Any]:
    """Return the pre-tokenizer, the decoder and the model."""
    model, chain = model_of(definition), definition.pre_tokenizer.chain
    check_chain(chain)
    texts = to_texts(definition.tokens)
    return {
        "pre_tokenizer": in_sequence(write_chain(chain, exact=exact)),
        "decoder": byte_level(use_regex=True),
        "model": bpe_model(
            _without_holes(vocab_by_text(definition, "huggingface", texts), definition.vocab_size),
            [[texts[left], texts[right]] for left, right, _ in model.merges.tolist()],
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


def read(file: JsonFile) -> tuple[BytePairModel, PreTokenizer]:
    """Read the model and the pre-tokenizer."""
    _check_decoder(file)
    known = {"unk_token": (None,), "byte_fallback": (False,), "ignore_merges": (False, True)}
    file.check_bpe("byte-level BPE here", **known)
    texts = texts_by_id(file.model["vocab"], file.specials)
    texts = {i: text for i, text in texts.items() if text[:1] != "<" or text != _UNUSED.format(i)}
    tokens = dict(zip(texts, to_byte_strings([*texts.values()], file.where), strict=True))
    merges, whole = read_merges(file.merges(), texts, file.where), bool(file.model.get("ignore_merges"))
    return BytePairModel.build(file.build(tokens), merges, ignore_merges=whole), _read_pre_tokenizer(file)


def _check_decoder(file: JsonFile) -> None:
    """Refuse a decoder that does more than to lay bytes end to end; a file may have none."""
    value = file.content.get("decoder")
    steps: list[Any] = [] if value is None else value.get("decoders", [value])
    if [step.get("type") for step in steps] not in ([], ["ByteLevel"], ["ByteLevel", "Fuse"]):
        raise file.refusal("decoder", value, "only ByteLevel can join the tokens of byte-level BPE")


def _read_pre_tokenizer(file: JsonFile) -> PreTokenizer:
    steps = file.steps
    if not steps or steps[-1]["type"] != "ByteLevel":
        kinds = [step["type"] for step in steps]
        raise file.refusal("pre_tokenizer", kinds, "the last step must be ByteLevel")
    if steps[-1].get("add_prefix_space"):
        raise file.refusal("pre_tokenizer.add_prefix_space", True, "only False can be done")
    chain = [read_split(step, file.where) for step in steps[:-1]]
    if steps[-1].get("use_regex", True):
        chain.append(SPLIT_PATTERNS["gpt2"])
    if not chain:
        raise file.refusal("pre_tokenizer", "ByteLevel", "without use_regex it needs a Split before it")
    return PreTokenizer(named(tuple(chain)))


GGUF_MODEL = "gpt2"

_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
)
_QWEN35 = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
_SEED_CODER = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}"
_BLOOM = " ?[^(\\s|.,!?…。，、।۔،)]+"

_PATTERNS: Mapping[PatternLike, str] = MappingProxyType(
    {
        "gpt2": "gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de gigachat a.x-4.0 mellum modern-bert "
        "exaone4 mpt olmo jais trillion granite-docling jina-v1-en jina-v2-code roberta-bpe",
        "llama3": "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano dbrx "
        "smaug-bpe glm4 chatglm-bpe",
        "qwen2": "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2",
        "o200k": "gpt-4o llama4 kanana2 talkie minimax-m2",
        "starcoder": "starcoder refact command-r smollm codeshell exaone minerva-7b mellum2",
        "deepseek_v3": "deepseek-v3 hunyuan-dense joyai-llm hy_v4",
        _TEKKEN: "tekken",
        _QWEN35: "qwen35",
        _SEED_CODER: "seed-coder",
        _BLOOM: "bloom gpt3-finnish poro-chat",
        (_BLOOM, r"\p{N}"): "viking",
        (r"\p{N}{1,3}", SPLIT_PATTERNS["llama3"].replace(r"\p{N}{1,3}", r"\p{N}+")): "minicpm5",
    }
)
"""Split patterns, and the names that stand for them."""

PRE_TOKENIZERS: Mapping[str, PatternLike] = MappingProxyType(
    {name: pattern for pattern, names in _PATTERNS.items() for name in names.split()}
)

_WHOLE_AND_BOS = frozenset(
    [
        *("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"),
        *("jina-v5-nano", "tekken"),
    ]
)
"""Those with which pre-tokens that are tokens are taken whole, and texts begin with bos."""
_WHOLE = _WHOLE_AND_BOS | {"minicpm5"}


def read_section(section: Section) -> Reading:
    """Read the vocabulary."""
    pre = section.get("pre", str, "default")
    if pre not in PRE_TOKENIZERS:
        raise section.trouble(
            f"tokenizer.ggml.pre={pre!r:.80} is not known; only {', '.join(PRE_TOKENIZERS)} can be read"
        )
    pairs = _merges(section)
    specials = _specials(section, {left + right for left, right in pairs})
    tokens = {
        i: to_bytes(text, f"{section.where}: tokens[{i}]")
        for i, text in enumerate(section.tokens)
        if i not in specials
    }
    names = {section.tokens[i]: i for i in sorted(specials)}
    model = BytePairModel.build(
        Vocabulary.build(tokens, names, count_reserved(names)),
        to_byte_pairs(pairs, section.where),
        ignore_merges=pre in _WHOLE,
    )
    definition = Definition.compose(model, split_pattern=PRE_TOKENIZERS[pre])
    before = ["bos"] * section.adds("bos", default=pre in _WHOLE_AND_BOS)
    return Reading(definition, {}, before, ["eos"] * section.adds("eos", default=False))


def _merges(section: Section) -> list[tuple[str, str]]:
    """Return the merges, in order: two tokens with a space between them."""
    pairs = []
    for rank, merge in enumerate(section.texts("merges", MAX_MERGES)):
        left, _, right = merge.partition(" ")
        if not left or not right:
            raise section.trouble(
                f"merges[{rank}]={merge!r:.80} must be two tokens with a space between them"
            )
        pairs.append((left, right))
    return pairs


def _specials(section: Section, made: set[str]) -> set[int]:
    """Return the ids of the tokens that the model does not make: special ones, and those of users."""
    found = set()
    for i, (text, kind) in enumerate(zip(section.tokens, section.kinds, strict=True)):
        if kind == PieceKind.BYTE:
            raise section.trouble(f"tokens[{i}]={text!r:.80} is of type BYTE, which byte-level BPE has not")
        if kind in SPECIAL_KINDS or (kind == PieceKind.UNUSED and len(text) > 1 and text not in made):
            found.add(i)
    return found
