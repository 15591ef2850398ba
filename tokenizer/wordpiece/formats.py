"""BERT's `vocab.txt`, one token per line, whose number is its id; WordPiece in `tokenizer.json` and GGUF.

Text is split by the pattern `bert`; the normalizer's settings are in `tokenizer_config.json`, and without it
text is lowercased and loses its accents if no token has a capital letter. One text becomes `[CLS] A [SEP]`.
In GGUF, pieces that begin words have a `▁`, those that continue them nothing, and words of more than 100
characters are unknown, which they are not to llama.cpp. Sources: google-research/bert `tokenization.py`;
`BertTokenizer` of transformers; ggml-org/llama.cpp, `conversion/bert.py` and `src/llama-vocab.cpp`.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tokmill.tokenizer.components.decoders import CONTINUES, Decoder
from tokmill.tokenizer.components.normalizers import Normalizer
from tokmill.tokenizer.components.normalizers import steps_of as normalizer_steps
from tokmill.tokenizer.components.post_processors import Part, Template
from tokmill.tokenizer.core.errors import FormatError, cannot_express, refuse_malformed
from tokmill.tokenizer.core.text import split_lines
from tokmill.tokenizer.core.vocabulary import MAX_IDS, Vocabulary, count_reserved
from tokmill.tokenizer.formats import transformers
from tokmill.tokenizer.formats.files import BERT, read_file, read_json, write_file, write_json
from tokmill.tokenizer.formats.gguf_section import SPECIAL_KINDS, Reading, Section
from tokmill.tokenizer.formats.model_file import PieceKind
from tokmill.tokenizer.formats.models import JsonFile, text_of
from tokmill.tokenizer.formats.sidecar import Usage
from tokmill.tokenizer.formats.split_steps import (
    in_sequence,
    named,
    read_steps,
    write_steps,
)
from tokmill.tokenizer.pipeline.base_model import UNKNOWN
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.pipeline.model import Model
from tokmill.tokenizer.splitting.splitter import PreTokenizer
from tokmill.tokenizer.wordpiece.model import NAME, WordPieceModel

_SPECIAL = {
    "pad_token": "[PAD]",
    "unk_token": UNKNOWN,
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
_STEPS = {
    "tokenize_chinese_chars": "cjk_spaces",
    "strip_accents": "strip_nonspacing",
    "do_lower_case": "lowercase",
}
_CLEAN_UP = "clean_up_tokenization_spaces"
_CONFIG = "tokenizer_config.json"


def write(definition: Definition, folder: Path) -> list[Path]:
    """Write the files into a folder."""
    texts = [text_of(token, "bert") for token in definition.tokens]
    if "" in texts or any("\n" in text or text.endswith("\r") for text in texts):
        raise cannot_express("bert", "this tokenizer: each id needs a token without line breaks")
    config = _settings(definition)
    if _spec(_definition(texts, config)) != _spec(definition):
        what = "this tokenizer: a vocab.txt has tokens alone, and is read with BERT's other parts"
        raise cannot_express("bert", what, "huggingface")
    content = "".join(f"{text}\n" for text in texts).encode()
    config |= transformers.given_settings(definition)
    return [write_file(folder / BERT, content), write_json(folder / _CONFIG, config)]


def _settings(definition: Definition) -> dict[str, Any]:
    """Return the content of `tokenizer_config.json`."""
    steps = {step.name for step in normalizer_steps(definition.normalizer.name)}
    return {
        "tokenizer_class": "BertTokenizer",
        _CLEAN_UP: definition.decoder.name == "wordpiece_cleanup",
        **{setting: step in steps for setting, step in _STEPS.items()},
        **{role: name for role, name in _SPECIAL.items() if name in definition.special_tokens},
    }


def _spec(definition: Definition) -> dict[str, Any]:
    """Return what the files must tell: no Unicode tables, given roles, chat templates or missing template."""
    template = definition.post_processor or _template(definition.special_tokens)
    others: dict[str, Any] = {"unicode": None, "roles": {}, "chat_templates": {}}
    return replace(definition, post_processor=template, **others).to_spec()


def read(path: Path, usage: Usage) -> Definition:
    """Read the file."""
    if usage != Usage(normalizer=usage.normalizer):
        raise FormatError(f"{path}: a vocab.txt is read as BERT's; pass nothing but normalizer")
    with refuse_malformed(str(path)):
        tokens = split_lines(read_file(path))
        _check(tokens, path)
        config = path.with_name(_CONFIG)
        definition = _definition(tokens, read_json(config) if config.exists() else {})
    return replace(definition, normalizer=Normalizer(usage.normalizer)) if usage.normalizer else definition


def _check(tokens: list[str], path: Path) -> None:
    if len(tokens) > MAX_IDS or UNKNOWN not in tokens:
        raise FormatError(
            f"{path}: has {len(tokens)} lines, {'one' if UNKNOWN in tokens else 'none'} of them {UNKNOWN}, "
            f"but a vocabulary has at most {MAX_IDS}, and {UNKNOWN}"
        )
    times = Counter(tokens)
    for number, token in enumerate(tokens, start=1):
        if not token or times[token] > 1:
            raise FormatError(
                f"{path}: line {number}: {token!r:.200} must not be empty, nor stand there twice; give each "
                "id a token of its own"
            )


def _definition(tokens: list[str], config: dict[str, Any]) -> Definition:
    specials = {name: tokens.index(name) for name in _SPECIAL.values() if name in tokens}
    ordinary = {i: token.encode() for i, token in enumerate(tokens) if token not in specials}
    return Definition(
        WordPieceModel(Vocabulary.build(ordinary, specials)),
        PreTokenizer("bert"),
        Normalizer(_normalizer(tokens, config)),
        _template(specials),
        Decoder("wordpiece_cleanup" if config.get(_CLEAN_UP, True) else "wordpiece"),
    )


def _normalizer(tokens: list[str], config: dict[str, Any]) -> str:
    """Return BERT's normalizer; accents are removed with the case unless the settings say so."""
    lower = config.get("do_lower_case")
    if lower is None:
        lower = all(token == token.lower() for token in tokens if token not in _SPECIAL.values())
    strip = config.get("strip_accents")
    wanted = {
        "tokenize_chinese_chars": config.get("tokenize_chinese_chars", True),
        "strip_accents": lower if strip is None else strip,
        "do_lower_case": lower,
    }
    return "+".join(["bert_clean", *(step for setting, step in _STEPS.items() if wanted[setting])])


def _template(specials: Collection[str]) -> Template | None:
    """Return BERT's template, if there are its tokens.

    One text is `[CLS] A [SEP]`, and two are `[CLS] A [SEP] B [SEP]`, the last two parts of type 1.
    """
    if not {"[CLS]", "[SEP]"} <= set(specials):
        return None
    single = Part("special", "[CLS]"), Part("sequence", "A"), Part("special", "[SEP]")
    return Template(single, (*single, Part("sequence", "B", 1), Part("special", "[SEP]", 1)))


GGUF_MODEL = "bert"
_MARK = "▁"
_IDS = {"cls": 101, "unk": 100, "sep": 102, "pad": 0, "mask": 103}


def read_section(section: Section) -> Reading:
    """Read the vocabulary."""
    ids = _ids(section)
    special = {*ids.values()} | {
        i for i, kind in enumerate(section.kinds) if kind in (*SPECIAL_KINDS, PieceKind.UNUSED)
    }
    if "unk" not in ids:
        raise section.trouble("tokenizer.ggml.unknown_token_id is not the id of a token; there must be one")
    names = {_special_name(section, i): i for i in sorted(special)}
    tokens = {i: _piece(text) for i, text in enumerate(section.tokens) if i not in special}
    vocabulary = Vocabulary.build(tokens, names, count_reserved(names))
    definition = Definition.compose(
        WordPieceModel(vocabulary, _special_name(section, ids["unk"])),
        split_pattern="bert",
        normalizer=_gguf_normalizer(section),
        decoder="wordpiece_cleanup",
    )
    before, after = ["cls"] * section.adds("bos", default=True), ["sep"] * section.adds("sep", default=True)
    return Reading(definition, ids, before, after, type_ids=True)


def _ids(section: Section) -> dict[str, int]:
    """Return the ids of roles; the first token of a text is bos, or else cls."""
    defaults = dict(_IDS)
    bos = section.id_of("bos")
    if bos is not None:
        defaults["cls"] = bos
    found = section.roles(defaults)
    return {role: token for role, token in found.items() if role in _IDS}


def _special_name(section: Section, token: int) -> str:
    text = section.tokens[token]
    return text if section.kinds[token] == PieceKind.CONTROL else text.removeprefix(_MARK) or text


def _piece(text: str) -> bytes:
    """Return a piece as BERT spells it; `▁` alone is one that continues words, since none is empty."""
    if text.startswith(_MARK) and text != _MARK:
        return text.removeprefix(_MARK).encode()
    in_brackets = len(text) > len("[]") and text.startswith("[") and text.endswith("]")
    return text.encode() if in_brackets else CONTINUES + text.encode()


def _gguf_normalizer(section: Section) -> str:
    lower: bool = section.get("normalizer.lowercase", bool, default=True)
    strip: bool = section.get("normalizer.strip_accents", bool, default=lower)
    return "bert_clean+cjk_spaces" + "+strip_nonspacing" * strip + "+lowercase" * lower


_PREFIX = CONTINUES.decode()


def _reads_json(content: Mapping[str, Any]) -> bool:
    """Whether a file is of this family."""
    return bool(content["model"].get("type") == "WordPiece")


def _write_json(definition: Definition, *, exact: bool) -> dict[str, Any]:
    """Return the pre-tokenizer, the decoder and the model."""
    model = definition.model
    if model.spec()["unknown"] != "word":
        raise cannot_express("huggingface", "unknown='part': in tokenizers, a whole word is unknown")
    return {
        "pre_tokenizer": in_sequence(write_steps(definition.pre_tokenizer.chain, exact=exact)),
        "decoder": {
            "type": "WordPiece",
            "prefix": _PREFIX,
            "cleanup": definition.decoder.name == "wordpiece_cleanup",
        },
        "model": {
            "type": "WordPiece",
            "unk_token": model.unknown_token,
            "continuing_subword_prefix": _PREFIX,
            "max_input_chars_per_word": model.spec()["max_input_chars_per_word"],
            "vocab": {text_of(token): i for i, token in enumerate(definition.tokens) if token},
        },
    }


def _read_json(file: JsonFile) -> tuple[Model, PreTokenizer]:
    """Read the model and the pre-tokenizer."""
    prefix = file.model.get("continuing_subword_prefix", _PREFIX)
    if prefix != _PREFIX:
        raise file.refusal("continuing_subword_prefix", prefix, "only ## can be done")
    unknown = file.unknown()
    file.check_decoder("WordPiece", "only WordPiece can join the pieces of words", prefix=_PREFIX)
    made = WordPieceModel(file.vocabulary(), unknown, file.model.get("max_input_chars_per_word", 100))
    return made, PreTokenizer(named(read_steps(file.steps, NAME, file.where)))


HUGGINGFACE = SimpleNamespace(reads=_reads_json, write=_write_json, read=_read_json)
