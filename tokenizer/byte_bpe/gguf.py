"""Byte-level BPE in GGUF: tokens and merges in GPT-2's byte alphabet, and the name of a split pattern.

The name, `tokenizer.ggml.pre`, stands for the pattern that llama.cpp's converter recognized; here it is the
published one, of which llama.cpp's own is at times an approximation. Tokens that are not the text of a merge
and are not marked as normal are special tokens, fillers of the vocabulary (type UNUSED) included.
Source: ggml-org/llama.cpp, `src/llama-vocab.cpp`.
"""

from collections.abc import Mapping
from types import MappingProxyType

from tokmill.tokenizer.byte_bpe.model import BytePairModel
from tokmill.tokenizer.core.text import to_bytes
from tokmill.tokenizer.core.vocabulary import Vocabulary, count_reserved
from tokmill.tokenizer.formats.gguf_section import SPECIAL_KINDS, Reading, Section
from tokmill.tokenizer.formats.model_file import PieceKind
from tokmill.tokenizer.kernels.pairs import MAX_MERGES
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.splitting import SPLIT_PATTERNS, PatternLike

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
        [(to_bytes(left, section.where), to_bytes(right, section.where)) for left, right in pairs],
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
