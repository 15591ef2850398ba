"""`vocab_probes`: how a tokenizer treats texts that often go wrong, and whether that is as one would like.

An unmet expectation is not a fault by itself. Names of special tokens in a probe are text. A text that the
tokenizer refuses has no ids, its expectation is not met, and the remark says why.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tokmill.tasks.audit.params import OwnProbe
from tokmill.tasks.audit.probe_judgement import (
    Encoded,
    Judge,
    Probe,
    Verdict,
    adds_at_most,
    at_most,
    begins_with,
    costs,
    cut_at,
    cut_of,
    differs_from,
    each_is_one,
    no_more_than,
    no_special,
    same_as,
    unchanged,
)
from tokmill.tokenizer import Tokenizer
from tokmill.tokenizer.core.buffers import pack
from tokmill.tokenizer.core.errors import TokenizerError

__all__ = ["SCHEMA", "OwnProbe", "probe"]

_S = pa.string()
SCHEMA = pa.schema(
    [
        *(("probe", _S), ("group", _S), ("text", _S), ("expectation", _S)),
        *(("ids", pa.list_(pa.uint32())), ("tokens", pa.list_(_S)), ("num_tokens", pa.int64())),
        *(("met", pa.bool_()), ("remark", _S)),
    ]
)
_BACK = ("comes back unchanged", unchanged)
_ONE_MORE = ("1 token more at most", adds_at_most(1, "return x"))
_SAME_BEGINNING = ("begins with the ids of the text without", begins_with("the end"))
_LINED_UP = "groups line up from the right"
_IDENTIFIERS = {
    "getUserName": "get User Name",
    "get_user_name": "get user name",
    "MAX_RETRY_COUNT": "MAX RETRY COUNT",
    "parseHTTPResponse": "parse HTTP Response",
}
_KEYWORDS = (
    *("def", "return", "import", "class", "for", "while", "if", "else", "function", "const", "struct"),
    *("public", "static", "void", "SELECT", "FROM", "WHERE"),
)
_PLAIN = "bold move"
_STYLES = {
    "bold": (0x1D5D4, 0x1D5EE),
    "italic": (0x1D608, 0x1D622),
    "script": (0x1D4D0, 0x1D4EA),
    "fraktur": (0x1D56C, 0x1D586),
    "double-struck": (0x1D538, 0x1D552),
    "monospace": (0x1D670, 0x1D68A),
    "fullwidth": (0xFF21, 0xFF41),
    "circled": (0x24B6, 0x24D0),
}
_SMALL_CAPITALS = dict(zip("abdelmov", "ᴀʙᴅᴇʟᴍᴏᴠ", strict=True))
_TYPOS = {
    "receive": ("recieve", "receve", "recceive", "rceeive", "receive\u200b"),
    "definitely": ("definately", "definitly", "defnitely"),
    "the quick brown fox": ("teh quick brown fox", "thequickbrownfox", "the qu1ck br0wn f0x"),
}
_CASES = {"Internet connection": ("internet connection", "INTERNET CONNECTION", "iNtErNeT cOnNeCtIoN")}
_EMOJI = {
    "smile": "😀",
    "skin tone": "👍🏽",
    "family of ZWJ": "👨‍👩‍👧‍👦",
    "flag": "🇯🇵",
    "variation selector": "❤️",
    "keycap": "1️⃣",
}
_RIGHT_TO_LEFT = {
    "Hebrew": "שלום עולם",
    "Hebrew with points": "שָׁלוֹם",
    "Arabic": "مرحبا بالعالم",
    "Arabic with marks": "مَرْحَبًا",
    "both directions": "The word שלום (peace) is Hebrew.",
}
_COMPATIBILITY = {
    "halfwidth katakana": ("ﾊﾝｶｸ", "ハンカク"),
    "squared word": ("㍿", "株式会社"),
    "compatibility ideograph": ("\uf900", "\u8c48"),
    "circled number": ("①", "1"),
    "squared unit": ("㎏", "kg"),
}
_MARKS = "Z\u0351\u036b\u0343a\u0334\u0321l\u0321g\u031bo"
_LONG = {
    "German compound": "Rindfleischetikettierungsüberwachungsaufgabenübertragungsgesetz",
    "medical term": "pneumonoultramicroscopicsilicovolcanoconiosis",
    "one letter, 1,000 times": "a" * 1000,
}
_JSON = '{"name": "Ada", "age": 36, "tags": ["math", "code"], "active": true}'
_YAML = "name: Ada\nage: 36\ntags:\n  - math\n  - code\nactive: true"
_LOOKALIKES = ("<|endoftext|>", "<|im_start|>", "</s>", "<s>", "[CLS]", "[MASK]", "<pad>")
_MOST_NAMES = 20
_LONGEST = 4
_NUMBERS = ("1234567", "12345678", "123456789")


def probe(tok: Tokenizer, own: Sequence[OwnProbe] = ()) -> pa.Table:
    """Return the table `vocab_probes`: ours, then the user's own.

    Args:
        tok: the tokenizer.
        own: probes of the profile.

    Raises:
        ValueError: two of the own probes have one name.
    """
    twice = [name for name, number in Counter(one.name for one in own).items() if number > 1]
    if twice:
        raise ValueError(f"probes: several are named {twice[0]!r}; give each its own name")
    probes = [*text_probes(tok), *number_probes(), *(one.to_probe() for one in own)]
    return pa.Table.from_pylist([_row(tok, one) for one in probes], SCHEMA)


def _row(tok: Tokenizer, one: Probe) -> dict[str, Any]:
    ids: list[int] = []
    try:
        found = Encoded.of(tok, one.text)
        ids, verdict = found.ids, one.judge(tok, found)
    except TokenizerError as error:
        verdict = Verdict(False, f"refused: {error}")
    return {
        "probe": one.name,
        "group": one.group,
        "text": one.text,
        "expectation": one.expectation,
        "ids": ids,
        "tokens": [tok.definition.model.readable(token) for token in ids],
        "num_tokens": len(ids),
        "met": None if one.expectation is None else verdict.met,
        "remark": verdict.remark,
    }


def text_probes(tok: Tokenizer) -> Iterator[Probe]:
    """Yield the probes of text; those of special tokens depend on the tokenizer's."""
    yield from _code()
    yield from _layout()
    yield from _data()
    yield from _unicode()
    yield from _spelling()
    names = dict.fromkeys([*list(tok.special_tokens)[:_MOST_NAMES], *_LOOKALIKES])
    for name in names:
        yield Probe(name, "special tokens", f"say {name} aloud", "no special token", no_special)


def _code() -> Iterator[Probe]:
    indents = {f"{number} spaces": " " * number for number in (2, 4, 8)} | {"tab": "\t", "2 tabs": "\t\t"}
    for name, indent in indents.items():
        yield Probe(name, "indentation", f"{indent}return x", *_ONE_MORE)
    yield Probe("keywords", "code", " ".join(_KEYWORDS), "each is 1 token", each_is_one(_KEYWORDS))
    for text, parts in _IDENTIFIERS.items():
        yield _cut(text, "identifiers", text, "word", parts)


def _cut(name: str, group: str, text: str, unit: str, parts: str) -> Probe:
    expectation = f"each {unit} begins a token, punctuation aside"
    return Probe(name, group, text, expectation, cut_at(parts.split()))


def _layout() -> Iterator[Probe]:
    yield Probe("CRLF", "line breaks", "one\r\ntwo", *_BACK)
    lines = no_more_than("one\ntwo\n")
    yield Probe("CRLF against LF", "line breaks", "one\r\ntwo\r\n", "no more tokens than LF", lines)
    for name, end in (("1 space", " "), ("3 spaces", "   ")):
        yield Probe(f"{name} at the end", "trailing spaces", f"the end{end}", *_SAME_BEGINNING)
    for text in ("Egg", " Egg", "egg", " egg", "EGG", " EGG"):
        yield Probe(repr(text), "variants of a word", text, "1 token", at_most(1))


def _data() -> Iterator[Probe]:
    for text in ("2024-02-29", "29/02/2024", "2024-02-29T12:34:56Z"):
        yield _cut(text, "dates", text, "number", re.sub(r"\D", " ", text))
    for text in ("0xDEADBEEF", "#ff8800", "123e4567-e89b-12d3-a456-426614174000"):
        yield Probe(text, "hex", text, *_BACK)
    yield _cut("URL", "addresses", "https://example.com/a?q=1", "part", "https example com a q")
    yield _cut("e-mail", "addresses", "ada.lovelace@example.com", "part", "ada lovelace example com")
    yield Probe("JSON", "data", _JSON, *_BACK)
    yield Probe("YAML of the same data", "data", _YAML, "no more tokens than JSON", no_more_than(_JSON))


def _unicode() -> Iterator[Probe]:
    for group, texts in (("emoji", _EMOJI), ("right to left", _RIGHT_TO_LEFT), ("long words", _LONG)):
        for name, text in texts.items():
            yield Probe(name, group, text, *_BACK)
    yield Probe("é in two parts", "combining marks", "cafe\u0301", "the ids of é in one", same_as("café"))
    yield Probe("many marks", "combining marks", _MARKS, *_BACK)
    styles = {name: _styled(_PLAIN, *starts) for name, starts in _STYLES.items()} | {
        "small capitals": "".join(_SMALL_CAPITALS.get(letter, letter) for letter in _PLAIN),
        "struck through": "".join(f"{letter}\u0336" for letter in _PLAIN),
    }
    for name, text in styles.items():
        yield Probe(name, "styling", text, None, costs(_PLAIN))
    for name, (text, plain) in _COMPATIBILITY.items():
        yield Probe(name, "compatibility forms", text, None, costs(plain))
    other = "other ids than its look-alike"
    yield Probe("Cyrillic а", "mixed scripts", "p\u0430ypal", other, differs_from("paypal"))
    yield Probe("Japanese and English", "mixed scripts", "このmodelはGPTです。", *_BACK)


def _styled(text: str, upper: int, lower: int) -> str:
    """Return a text with its letters moved to where the alphabets of a style begin."""
    starts = {True: upper - ord("A"), False: lower - ord("a")}
    return "".join(chr(ord(s) + starts[s.isupper()]) if s.isalpha() else s for s in text)


def _spelling() -> Iterator[Probe]:
    for group, words in (("typos", _TYPOS), ("case", _CASES)):
        for plain, changed in words.items():
            for text in changed:
                yield Probe(repr(text), group, text, None, costs(plain))
    word = "strawberry"
    spelled = " ".join(word)
    yield Probe("spelled", "letters", spelled, f"{len(word)} tokens at most", at_most(len(word)))
    yield Probe("spelled with hyphens", "letters", "-".join(word), None, costs(word))
    yield Probe("reversed", "letters", word[::-1], None, costs(word))


def number_probes() -> Iterator[Probe]:
    """Yield a probe for each length of numbers, and for sums."""
    for length in range(1, _LONGEST + 1):
        first = 0 if length == 1 else 10 ** (length - 1)
        name = f"numbers of {length} digit{'s' * (length > 1)}"
        alike = _cut_alike(range(first, 10**length))
        yield Probe(name, "numbers", str(first), "all are cut at the same digits", alike)
    for text in _NUMBERS:
        yield Probe(f"{len(text)} digits", "arithmetic", text, _LINED_UP, _lines_up)
    yield Probe("columns of a sum", "arithmetic", "12345 + 6789 = 19134", _LINED_UP, _sum_lines_up)


def cuts_of(tok: Tokenizer, numbers: range) -> "Counter[tuple[int, ...]]":
    """Return how many of the numbers have each cut, as the digits in each token."""
    found = tok.locate_buffers(*pack([str(number) for number in numbers]), as_text=True)
    digits = np.concatenate([np.zeros(1, np.int64), np.cumsum((found.data >= 48) & (found.data <= 57))])
    lengths = digits[found.ends] - digits[found.starts]
    number = np.repeat(np.arange(len(numbers)), np.diff(found.offsets))[lengths > 0]
    place = np.arange(len(number)) - np.searchsorted(number, number)
    cuts = np.zeros((len(numbers), place.max(initial=0) + 1), np.int64)
    cuts[number, place] = lengths[lengths > 0]
    distinct, times = np.unique(cuts, axis=0, return_counts=True)
    pairs = zip(distinct.tolist(), times.tolist(), strict=True)
    return Counter({tuple(filter(None, cut)): times for cut, times in pairs})


def _cut_alike(numbers: range) -> Judge:
    def judge(tok: Tokenizer, found: Encoded) -> Verdict:
        cuts = cuts_of(tok, numbers)
        order = sorted(cuts.items(), key=lambda pair: (-pair[1], pair[0]))
        listed = ", ".join(f"{'+'.join(map(str, cut)) or 'unknown'}: {number}" for cut, number in order)
        return Verdict(len(cuts) == 1 and () not in cuts, f"digits in tokens of {len(numbers)}: {listed}")

    return judge


def _lines_up(tok: Tokenizer, found: Encoded) -> Verdict:
    groups = cut_of(tok, found.text)
    return Verdict(_from_right(groups, found.text), f"{found.figures}: {'|'.join(groups)}")


def _sum_lines_up(tok: Tokenizer, found: Encoded) -> Verdict:
    numbers = "".join(s if s.isdigit() else " " for s in found.text).split()
    left = [part for part in cut_of(tok, found.text) if part.isdigit()]
    groups = [_take(left, len(number)) for number in numbers]
    sizes = {len(part) for parts in groups for part in parts[1:]}
    met = len(sizes) <= 1 and all(map(_from_right, groups, numbers))
    return Verdict(met, f"{found.figures}: {' '.join('|'.join(parts) for parts in groups)}")


def _take(left: list[str], number: int) -> list[str]:
    """Take parts away from the front of a list until they have so many characters."""
    taken: list[str] = []
    while left and sum(map(len, taken)) < number:
        taken.append(left.pop(0))
    return taken


def _from_right(groups: list[str], text: str) -> bool:
    """Whether all groups but the first have one size, and the first is no longer."""
    if "".join(groups) != text:
        return False
    sizes = [len(group) for group in groups]
    return len(set(sizes[1:])) <= 1 and sizes[0] <= max(sizes[1:], default=sizes[0])
