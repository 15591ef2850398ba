"""The probes of text: code, layout, Unicode, spelling, data and look-alikes of special tokens."""

from collections.abc import Iterator

from tokmill.tasks.audit.probing.judging import (
    Probe,
    adds_at_most,
    at_most,
    begins_with,
    costs,
    cut_at,
    differs_from,
    each_is_one,
    no_more_than,
    no_special,
    same_as,
    unchanged,
)
from tokmill.tokenizer import Tokenizer

_BACK = "comes back unchanged"
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
_LONG = {
    "German compound": "Rindfleischetikettierungsüberwachungsaufgabenübertragungsgesetz",
    "medical term": "pneumonoultramicroscopicsilicovolcanoconiosis",
    "one letter, 1,000 times": "a" * 1000,
}
_JSON = '{"name": "Ada", "age": 36, "tags": ["math", "code"], "active": true}'
_YAML = "name: Ada\nage: 36\ntags:\n  - math\n  - code\nactive: true"
_LOOKALIKES = ("<|endoftext|>", "<|im_start|>", "</s>", "<s>", "[CLS]", "[MASK]", "<pad>")
_MOST_NAMES = 20


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
    for number in (2, 4, 8):
        yield Probe(
            f"{number} spaces",
            "indentation",
            " " * number + "return x",
            "1 token more at most",
            adds_at_most(1, "return x"),
        )
    for number in (1, 2):
        name = "tab" if number == 1 else f"{number} tabs"
        yield Probe(
            name,
            "indentation",
            "\t" * number + "return x",
            "1 token more at most",
            adds_at_most(1, "return x"),
        )
    yield Probe("keywords", "code", " ".join(_KEYWORDS), "each is 1 token", each_is_one(_KEYWORDS))
    for text, parts in (
        ("getUserName", ["get", "User", "Name"]),
        ("get_user_name", ["get", "user", "name"]),
        ("MAX_RETRY_COUNT", ["MAX", "RETRY", "COUNT"]),
        ("parseHTTPResponse", ["parse", "HTTP", "Response"]),
    ):
        yield Probe(text, "identifiers", text, "each word begins a token, punctuation aside", cut_at(parts))


def _layout() -> Iterator[Probe]:
    yield Probe("CRLF", "line breaks", "one\r\ntwo", _BACK, unchanged)
    yield Probe(
        "CRLF against LF",
        "line breaks",
        "one\r\ntwo\r\n",
        "no more tokens than LF",
        no_more_than("one\ntwo\n"),
    )
    for number in (1, 3):
        text = "the end" + " " * number
        yield Probe(
            f"{number} spaces at the end" if number > 1 else "1 space at the end",
            "trailing spaces",
            text,
            "begins with the ids of the text without",
            begins_with("the end"),
        )
    for text in ("Egg", " Egg", "egg", " egg", "EGG", " EGG"):
        yield Probe(repr(text), "variants of a word", text, "1 token", at_most(1))


def _data() -> Iterator[Probe]:
    for text, parts in (
        ("2024-02-29", ["2024", "02", "29"]),
        ("29/02/2024", ["29", "02", "2024"]),
        ("2024-02-29T12:34:56Z", ["2024", "02", "29", "12", "34", "56"]),
    ):
        yield Probe(text, "dates", text, "each number begins a token, punctuation aside", cut_at(parts))
    for text in ("0xDEADBEEF", "#ff8800", "123e4567-e89b-12d3-a456-426614174000"):
        yield Probe(text, "hex", text, _BACK, unchanged)
    yield Probe(
        "URL",
        "addresses",
        "https://example.com/a?q=1",
        "each part begins a token, punctuation aside",
        cut_at(["https", "example", "com", "a", "q"]),
    )
    yield Probe(
        "e-mail",
        "addresses",
        "ada.lovelace@example.com",
        "each part begins a token, punctuation aside",
        cut_at(["ada", "lovelace", "example", "com"]),
    )
    yield Probe("JSON", "data", _JSON, _BACK, unchanged)
    yield Probe("YAML of the same data", "data", _YAML, "no more tokens than JSON", no_more_than(_JSON))


def _unicode() -> Iterator[Probe]:
    for group, texts in (("emoji", _EMOJI), ("right to left", _RIGHT_TO_LEFT), ("long words", _LONG)):
        for name, text in texts.items():
            yield Probe(name, group, text, _BACK, unchanged)
    yield Probe("é in two parts", "combining marks", "cafe\u0301", "the ids of é in one", same_as("café"))
    yield Probe(
        "many marks", "combining marks", "Z\u0351\u036b\u0343a\u0334\u0321l\u0321g\u031bo", _BACK, unchanged
    )
    for name, (upper, lower) in _STYLES.items():
        yield Probe(name, "styling", _styled(_PLAIN, upper, lower), None, costs(_PLAIN))
    small = "".join(_SMALL_CAPITALS.get(letter, letter) for letter in _PLAIN)
    yield Probe("small capitals", "styling", small, None, costs(_PLAIN))
    yield Probe(
        "struck through", "styling", "".join(f"{letter}\u0336" for letter in _PLAIN), None, costs(_PLAIN)
    )
    for name, (text, plain) in _COMPATIBILITY.items():
        yield Probe(name, "compatibility forms", text, None, costs(plain))
    yield Probe(
        "Cyrillic а", "mixed scripts", "p\u0430ypal", "other ids than its look-alike", differs_from("paypal")
    )
    yield Probe("Japanese and English", "mixed scripts", "このmodelはGPTです。", _BACK, unchanged)


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
