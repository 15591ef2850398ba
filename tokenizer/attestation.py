"""Attestation: texts with the ids that a tokenizer gave them, to check that it still gives them.

The probes cover every widely read writing system, emoji, code, white space and special tokens, both as tokens
and as text; a family adds its own (`Model.probes`). They change only with `VERSION`. An attestation is
JSON-able and holds only what ids depend on, so equal tokenizers have equal ones on every Python.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import unicodedata2 as unicodedata

from tokmill.tokenizer.components.decoders import Decoder
from tokmill.tokenizer.core import buffers
from tokmill.tokenizer.core.errors import TokenizerError
from tokmill.tokenizer.tokenizer import Tokenizer

VERSION = 1

PROBES: MappingProxyType[str, str] = MappingProxyType(
    {
        "empty": "",
        "english": "The quick brown fox doesn't jump; it'll WAIT, won't it?",
        "french": "Où êtes-vous né·e ? L'été dernier, peut-être…",
        "german": "Größe, Straße und Überraschung: Donaudampfschifffahrtsgesellschaft",
        "polish": "Zażółć gęślą jaźń, proszę pana.",
        "turkish": "İstanbul'da ılık bir gün, değil mi?",
        "vietnamese": "Tiếng Việt có rất nhiều dấu.",
        "greek": "Η γλώσσα είναι ΜΕΓΆΛΗ υπόθεση, Σίσυφος.",
        "russian": "Съешь ещё этих мягких булок.",
        "ukrainian": "Ґанок, їжак і п'ять яблук.",
        "georgian": "გამარჯობა, როგორ ხარ?",
        "armenian": "Բարեւ ձեզ, ինչպե՞ս եք։",
        "hebrew": "שָׁלוֹם, מה שלומך היום?",
        "arabic": "اللُّغَةُ العربيّة جميلةٌ، أليس كذلك؟ ١٢٣",
        "persian": "می‌خواهم به خانه بروم ۴۵۶",
        "hindi": "क्षमा कीजिए, आप कैसे हैं? १२३",
        "bengali": "আমি বাংলায় গান গাই।",
        "tamil": "யாதும் ஊரே யாவரும் கேளிர்",
        "thai": "ภาษาไทยไม่มีช่องว่างระหว่างคำ",
        "amharic": "ሰላም ነው? እንዴት ነህ።",
        "chinese": "今天天气很好，我们去公园吧。「你好」",
        "japanese": "吾輩は猫である。ナマエはまだ無い、ﾅﾝﾃ。",
        "korean": "나는 오늘 학교에 갔습니다. ㅋㅋㅋ",
        "emoji": "😀👍🏽👩‍👩‍👧‍👦🏳️‍🌈🇺🇳❤️",
        "mathematics": "∀x∈ℝ: ⌈x⌉ = −⌊−x⌋, 𝛼²≈½ ± 3×10⁻⁸",
        "combining": "e\u0301 n\u0303 a\u0308\u0323 Z\u0351\u036b\u0343",
        "digits": "0 12 123 1234 12345 1234567890 3.14159 1,000,000 Ⅳ ⑤ ½",
        "python": "def f(x: int = 0) -> str:\n    return f'{x!r}'  # done\n\n\nclass A_B2:\n\tpass\n",
        "json": '{"key": [1, 2.5e-3, null], "nested": {"a\\u00e9": "b"}}',
        "html": '<a href="https://example.org/?q=1&r=%20">link</a><!-- -->',
        "shell": "$ git commit -m 'x' && ls -la ~/.config | grep -v ^d > out.txt 2>&1",
        "identifiers": "snake_case camelCase HTTPServer2 __init__ x86_64 v1.2.3-rc.4",
        "spaces": "a b  c   d    e        f\tg\t\th  ",
        "lines": "\n\nfirst\r\nsecond\r\rthird\n \n  fourth \n",
        "unicode spaces": "a\u00a0b\u2003c\u3000d\u200be\u2028f\u0085g",
        "controls": "\x00\x01\x1f\x7f\ufeff\ufffd\u202etext\u202c",
        "contractions": "I'm you're he'd WE'LL they've 'tis it’s O'Neill's",
        "repetition": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!!!!!!!!!!!!!!!! --------------------------------",
        "base64": "SGVsbG8gd29ybGQsIHRoaXMgaXMgYSBsb25nIGJsb2Igb2YgdGV4dC4uLgAA/+8=",
        "planes": "\U00010348\U0001d11e\U00020bb7\U000e0041\U0010fffd",
    }
)
"""Texts by name."""

_TEMPLATED = "first text", "second text"


def make(tok: Tokenizer) -> dict[str, Any]:
    """Make the attestation of a tokenizer: the ids of every probe."""
    probes = [*_probes(tok)]
    found = _encode(tok, [(text, as_text) for _, text, as_text in probes])
    return {
        "version": VERSION,
        "vocab_size": tok.vocab_size,
        "unicode": _unicode_versions(tok),
        "policy": _policy(tok),
        "probes": [
            {"name": name, "text": text, "special_as_text": as_text, "ids": ids}
            for (name, text, as_text), ids in zip(probes, found, strict=True)
        ],
    } | _templated(tok)


def _policy(tok: Tokenizer) -> dict[str, list[str] | None]:
    """Return the special tokens that `add_special_tokens` puts before and after a text."""
    if tok.definition.post_processor is None:
        return {"begin": None, "end": None}
    before, behind = tok.definition.post_processor.around()
    return {"begin": before, "end": behind}


def _templated(tok: Tokenizer) -> dict[str, Any]:
    """Return the ids of one text and of two with the template, if there is one."""
    if tok.definition.post_processor is None:
        return {}
    single = tok.encode(_TEMPLATED[0], add_special_tokens=True)
    return {"template": {"single": single, "pair": tok.encode(*_TEMPLATED, add_special_tokens=True)}}


def _unicode_versions(tok: Tokenizer) -> dict[str, str]:
    """Return the versions of the tables that the ids depend on; only normalizers have `unicodedata`'s."""
    versions = {"split": tok.splitter.unicode["version"], "tables": tok.splitter.unicode["tables"]}
    if tok.definition.normalizer.name is not None:
        versions["normalizer"] = unicodedata.unidata_version
    return versions


def check(tok: Tokenizer, attestation: Mapping[str, Any]) -> None:
    """Check that a tokenizer gives the attested ids.

    Raises:
        TokenizerError: it does not; names the first probe that differs, or the part that is missing.
    """
    if attestation.get("version") != VERSION or "probes" not in attestation:
        raise TokenizerError(
            f"attestation: version={attestation.get('version')!r} is not known here, which reads {VERSION}; "
            "attest the tokenizer again"
        )
    if attestation["vocab_size"] != tok.vocab_size:
        raise TokenizerError(
            f"attestation: the tokenizer has vocab_size={tok.vocab_size}, but {attestation['vocab_size']} "
            "was attested; it is another tokenizer"
        )
    if _templated(tok).get("template") != attestation.get("template"):
        raise TokenizerError(
            "attestation: with special tokens around, the tokenizer gives "
            f"{_templated(tok).get('template')}, but {attestation.get('template')} was attested; its "
            "template has changed"
        )
    probes = attestation["probes"]
    found = _encode(tok, [(probe["text"], probe["special_as_text"]) for probe in probes])
    for probe, ids in zip(probes, found, strict=True):
        _check_probe(tok, probe, ids, attestation.get("unicode"))


def _check_probe(tok: Tokenizer, probe: Mapping[str, Any], ids: list[int], unicode: object) -> None:
    if ids != probe["ids"]:
        place = next((i for i, (a, b) in enumerate(zip(ids, probe["ids"], strict=False)) if a != b), -1)
        place = place if place >= 0 else min(len(ids), len(probe["ids"]))
        raise TokenizerError(
            f"attestation: probe {probe['name']!r}: id {place} of {probe['text']!r} is "
            f"{ids[place : place + 1]}, but {probe['ids'][place : place + 1]} was attested; the tokenizer "
            f"has changed, or the Unicode tables that split text (attested: {unicode})"
        )
    expected = _recovered(tok, probe["text"], probe["special_as_text"])
    found = tok.decode_bytes(ids)
    if found != expected:
        raise TokenizerError(
            f"attestation: probe {probe['name']!r}: {expected!r} comes back as {found!r}; the vocabulary is "
            "broken"
        )


def _encode(tok: Tokenizer, probes: Sequence[tuple[str, bool]]) -> list[list[int]]:
    """Encode texts, with special tokens in them as text or not."""
    as_text = tok.encode_batch([text for text, is_text in probes if is_text], as_text=True)
    others = tok.encode_batch([text for text, is_text in probes if not is_text], allowed_special="all")
    found = {True: iter(as_text.to_lists()), False: iter(others.to_lists())}
    return [next(found[is_text]) for _, is_text in probes]


def _recovered(tok: Tokenizer, text: str, as_text: bool) -> bytes:
    """Return what decoding should give back: the normalized text, as far as the model knows it.

    It need not be UTF-8: a model may know some bytes of a character and not the others.
    """
    data, segments = tok.normalized_segments(*buffers.pack([text]), allowed_special=() if as_text else "all")
    if tok.definition.model.unknown_token is None and tok.definition.decoder == Decoder():
        return data.tobytes()
    parts = zip(buffers.unpack(data, segments.bounds), segments.kinds, strict=True)
    found = ([part] if kind >= 0 else _known(tok, part) for part, kind in parts)
    return tok.definition.decoder.join(itertools.chain.from_iterable(found))


def _known(tok: Tokenizer, text: bytes) -> list[bytes]:
    return tok.definition.model.recovers([part.encode() for part in tok.splitter.split_text(text.decode())])


def _probes(tok: Tokenizer) -> Iterator[tuple[str, str, bool]]:
    """Yield the name and text of each probe, and whether special tokens in it are text."""
    for name, text in (PROBES | tok.definition.model.probes()).items():
        yield name, text, True
    for name in list(tok.added_tokens)[:8]:
        yield f"added {name}", f"before{name}{name} after {name}", True
    for name in list(tok.special_tokens)[:8]:
        text = f"before{name}{name} after {name}"
        yield f"special {name}", text, False
        yield f"special {name} as text", text, True
