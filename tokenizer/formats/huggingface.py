"""Hugging Face's format: one `tokenizer.json` for the `tokenizers` library.

Written: a BPE model in GPT-2's byte alphabet, the split chain as published files spell it (`spellings`),
    `ByteLevel` for the bytes, and special tokens both in the vocabulary and as added tokens; ids without a
    token have an entry that nothing becomes. Beside it `tokenizer_config.json` (`transformers`).
Read: what says the same in the ways that published files say it. A post-processor (which adds tokens such
    as BOS) becomes the tokenizer's template; what cannot become one is refused by name.
"""

from pathlib import Path
from typing import Any

import regex

from tokmill.tokenizer.components.definition import Definition
from tokmill.tokenizer.components.normalizers import steps_of
from tokmill.tokenizer.components.specials import reserved_name
from tokmill.tokenizer.core.alphabet import to_bytes, to_text
from tokmill.tokenizer.core.errors import FormatError
from tokmill.tokenizer.core.reading import reading
from tokmill.tokenizer.formats import post_processors, transformers
from tokmill.tokenizer.formats.files import write_json
from tokmill.tokenizer.formats.gpt2 import alphabet_vocab
from tokmill.tokenizer.formats.spellings import SINGLE_DIGITS, byte_level, read_expression, write_chain
from tokmill.tokenizer.splitting import SPLIT_PATTERNS, resolve

FILE_NAME = "tokenizer.json"

_NORMALIZERS = {
    "nfc": "NFC",
    "nfd": "NFD",
    "nfkc": "NFKC",
    "nfkd": "NFKD",
    "lowercase": "Lowercase",
    "strip_accents": "StripAccents",
}
_STEPS = {name: step for step, name in _NORMALIZERS.items()}

# What Oniguruma, the engine of `tokenizers`, reads in another way than `regex` does, outside of escapes
# and classes: `{1,3}+` is not possessive there, `$` and `^` match at every line, and these escapes stand for
# other sets of characters.
_READ_OTHERWISE = regex.compile(r"\}\+|(?<!\[)\^|\$|\\[dDwWbBhHRXAZzG]")
_NOT_SYNTAX = regex.compile(r"\\[pP]\{[^}]*\}|\\[^dDwWbBhHRXAZzG]|\[\^?\]?(?:\\.|[^\]\\])*\]", regex.DOTALL)

_MAX_DIGITS = 8
_UNUSED = "<unused {}>"

_MODEL_MUST_BE: dict[str, tuple[Any, ...]] = {
    "dropout": (None, 0.0),
    "unk_token": (None,),
    "continuing_subword_prefix": (None, ""),
    "end_of_word_suffix": (None, ""),
    "byte_fallback": (False,),
}


def write(definition: Definition, folder: Path, *, exact: bool = False) -> list[Path]:
    """Write the file into a folder, with `tokenizer_config.json` for `transformers`.

    Args:
        definition: what to write.
        folder: where.
        exact: whether to spell out what the published spelling of the split leaves out; see `spellings`.

    Raises:
        FormatError: the split pattern means something else to `tokenizers`, or a special token's text is
            another token's in the byte alphabet.
    """
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": definition.ignore_merges,
        "vocab": _without_holes(alphabet_vocab(definition, "huggingface"), definition.vocab_size),
        "merges": [[to_text(left), to_text(right)] for left, right in definition.pairs],
    }
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added_token(name, i) for name, i in definition.special_tokens.items()],
        "normalizer": _write_normalizer(definition.normalizer),
        "pre_tokenizer": _write_pre_tokenizer(definition, exact=exact),
        "post_processor": post_processors.write(definition.template, definition.special_tokens),
        "decoder": byte_level(use_regex=True),
        "model": model,
    }
    return [write_json(folder / FILE_NAME, content), transformers.write(definition, folder)]


def _without_holes(vocab: dict[str, int], vocab_size: int) -> dict[str, int]:
    """Give ids without a token an entry that no text can become, as a space is not in the byte alphabet.

    Some readers take the number of entries for the first id that is free, or refuse holes.
    """
    used = set(vocab.values())
    holes = [i for i in range(vocab_size) if i not in used]
    if len(holes) > len(vocab) or any(_UNUSED.format(i) in vocab for i in holes):
        return vocab
    return vocab | {_UNUSED.format(i): i for i in holes}


def _added_token(name: str, i: int) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"id": i, "content": name, **flags}


def _write_normalizer(name: str | None) -> dict[str, Any] | None:
    steps = [{"type": _NORMALIZERS[step]} for step in steps_of(name)]
    if len(steps) > 1:
        return {"type": "Sequence", "normalizers": steps}
    return steps[0] if steps else None


def _write_pre_tokenizer(definition: Definition, *, exact: bool) -> dict[str, Any]:
    chain = resolve(definition.split_pattern, definition.digits)
    for expression in chain:
        otherwise = _READ_OTHERWISE.search(_NOT_SYNTAX.sub("", expression))
        if otherwise:
            raise FormatError(
                f"format='huggingface' cannot express split_pattern={expression!r}: the tokenizers library "
                f"reads {otherwise[0]!r} in another way; write it otherwise, or use format='tokmill'"
            )
    steps = write_chain(chain, exact=exact)
    return {"type": "Sequence", "pretokenizers": steps} if len(steps) > 1 else steps[0]


def read_content(content: dict[str, Any], where: str) -> Definition:
    """Read what the file holds.

    Args:
        content: its JSON.
        where: its path, for messages.

    Raises:
        FormatError: it is broken, or says something that a byte-level BPE tokenizer here cannot do; says
            what.
        VocabularyError: the vocabulary breaks a law.
    """
    with reading(where):
        return _read(content, where)


def _read(content: dict[str, Any], where: str) -> Definition:
    model = content["model"]
    _check_model(model, where)
    specials = _read_added_tokens(content.get("added_tokens") or [], where)
    vocab = {
        text: i for text, i in model["vocab"].items() if specials.get(text) != i and text != _UNUSED.format(i)
    }
    pairs = [tuple(merge.split(" ") if isinstance(merge, str) else merge) for merge in model["merges"]]
    return Definition.build(
        {i: to_bytes(text, where) for text, i in vocab.items()},
        [(to_bytes(left, where), to_bytes(right, where)) for left, right in pairs],
        specials,
        split_pattern=_read_pre_tokenizer(content.get("pre_tokenizer"), where),
        normalizer=_read_normalizer(content.get("normalizer"), where),
        ignore_merges=bool(model.get("ignore_merges")),
        num_reserved=_num_reserved(list(specials)),
        template=post_processors.read(content.get("post_processor"), specials, where),
    )


def _num_reserved(names: list[str]) -> int:
    """Return how many special tokens at the end are named as reserved ones are."""
    last = regex.fullmatch(r"\D+(\d+)\D+", names[-1]) if names else None
    number = int(last[1]) + 1 if last and len(last[1]) < _MAX_DIGITS else 0
    if number > len(names):  # a name says any number that it likes
        return 0
    return number if names[-number:] == [reserved_name(i) for i in range(number)] else 0


def _refuse(where: str, key: str, value: object, rule: str) -> FormatError:
    return FormatError(f"{where}: {key}={value!r:.200}, but {rule}")


def _check_model(model: dict[str, Any], where: str) -> None:
    if model.get("type", "BPE") != "BPE":
        raise _refuse(where, "model.type", model["type"], "only byte-level BPE can be read")
    for key, values in _MODEL_MUST_BE.items():
        if model.get(key, values[0]) not in values:
            raise _refuse(where, f"model.{key}", model[key], f"byte-level BPE here has {values[0]!r}")


def _read_added_tokens(added: list[dict[str, Any]], where: str) -> dict[str, int]:
    for token in added:
        for flag in ("single_word", "lstrip", "rstrip"):
            if token.get(flag):
                raise _refuse(
                    where, f"added_tokens: {token['content']!r}: {flag}", True, "only False can be done"
                )
        if not token.get("special") and token["content"].isspace():
            raise _refuse(
                where,
                "added_tokens",
                token["content"],
                "white space that is cut out of ordinary text before it is split, as GPT-NeoX's is, cannot "
                "be done here",
            )
    return {token["content"]: token["id"] for token in added}


def _read_normalizer(value: dict[str, Any] | None, where: str) -> str | None:
    if value is None:
        return None
    several = value["normalizers"] if value["type"] == "Sequence" else [value]
    for step in several:
        if step["type"] not in _STEPS:
            raise _refuse(where, "normalizer.type", step["type"], f"only {', '.join(_STEPS)} can be done")
    return "+".join(_STEPS[step["type"]] for step in several) or None


def _read_pre_tokenizer(value: dict[str, Any] | None, where: str) -> str | tuple[str, ...]:
    steps = (value or {}).get("pretokenizers", [value]) if value else []
    if not steps or steps[-1]["type"] != "ByteLevel":
        raise _refuse(
            where, "pre_tokenizer", [step["type"] for step in steps], "the last step must be ByteLevel"
        )
    if steps[-1].get("add_prefix_space"):
        raise _refuse(where, "pre_tokenizer.add_prefix_space", True, "only False can be done")
    chain = [_read_split(step, where) for step in steps[:-1]]
    if steps[-1].get("use_regex", True):
        chain.append(SPLIT_PATTERNS["gpt2"])
    if not chain:
        raise _refuse(where, "pre_tokenizer", "ByteLevel", "without use_regex it needs a Split before it")
    return _named(tuple(chain))


def _read_split(step: dict[str, Any], where: str) -> str:
    if step["type"] == "Digits":
        return SINGLE_DIGITS if step["individual_digits"] else r"\p{N}+"
    if step["type"] != "Split":
        raise _refuse(
            where, "pre_tokenizer.type", step["type"], "only Split, Digits and ByteLevel can be read"
        )
    pattern = step["pattern"]
    expression: str = pattern["Regex"] if "Regex" in pattern else regex.escape(pattern["String"])
    how = step["behavior"], bool(step.get("invert"))
    # Taking the matches and dropping the rest is the same where nothing is left over.
    if how not in {("Isolated", False), ("Isolated", True)} and not (
        how == ("Removed", True) and expression in SPLIT_PATTERNS.values()
    ):
        raise _refuse(where, "pre_tokenizer: Split.behavior", step["behavior"], "only Isolated can be done")
    return read_expression(expression)


def _named(chain: tuple[str, ...]) -> str | tuple[str, ...]:
    """Return the name of a chain that has one."""
    for name, expression in SPLIT_PATTERNS.items():
        if chain == (expression,):
            return name
    return chain[0] if len(chain) == 1 else chain
