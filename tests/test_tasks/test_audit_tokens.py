"""Tokens and suspects of small vocabularies by hand, GPT-2's against the published list, and words."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import regex
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tests.test_tasks.audited import FAMILIES, TEXTS, of_family
from tokmill import tokenizer
from tokmill.tasks.audit.measurement import words_of
from tokmill.tasks.audit.suspects import find_suspects, signs
from tokmill.tasks.audit.tokens import SCHEMA, Occurrences, describe_tokens
from tokmill.tokenizer import Tokenizer
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts

BYTES = {bytes([byte]): byte for byte in range(256)}


def table(tok: Tokenizer, **given) -> dict[str, dict]:
    rows = describe_tokens(tok, **given)
    assert rows.schema == SCHEMA
    return {row["text"]: row for row in rows.to_pylist()}


@pytest.fixture(scope="module")
def pairs() -> Tokenizer:
    """Byte-level BPE with a token across pre-tokens, a twin in NFC, and one whose merges come too late."""
    added = [b"ab", b" T", b" Th", b"b c", "é".encode(), "e\u0301".encode(), b"12", b"\xcc\x81", b"bc"]
    added += [b"abc"]
    vocab = BYTES | {token: 256 + i for i, token in enumerate(added)}
    merges = [(b"a", b"b"), (b" ", b"T"), (b" T", b"h"), (b"b", b"c"), (b"\xc3", b"\xa9"), (b"1", b"2")]
    merges += [(b"\xcc", b"\x81"), (b"e", b"\xcc\x81"), (b"a", b"bc")]
    return Tokenizer.from_vocab(vocab, merges, special_tokens={"<|end|>": 266}, ignore_merges=False)


def test_what_a_token_is(pairs: Tokenizer) -> None:
    rows = table(pairs)
    th = rows[" Th"]
    assert (th["kind"], th["rank"], th["left"], th["right"]) == ("merge", 2, 257, ord("h"))
    assert (th["num_bytes"], th["num_chars"], th["scripts"], th["categories"]) == (3, 3, "Latin", "LZ")
    assert (th["leading_space"], th["casing"], th["run"], th["word"]) == (True, "title", None, "th")
    assert (rows["12"]["run"], rows["12"]["word"], rows[" "]["run"]) == ("number", "12", "white_space")
    assert [rows["\\xcc"][name] for name in ("is_utf8", "num_chars", "word")] == [False, None, None]
    assert rows["<|end|>"]["reachable"] is None


def test_characters_by_hand() -> None:
    by_hand = {
        "Ab": ("Latin", "L", "title", None, "ab"),
        "aB": ("Latin", "L", "mixed", None, "ab"),
        "AbC": ("Latin", "L", "mixed", None, "abc"),
        "AB": ("Latin", "L", "upper", None, "ab"),
        " ab\n": ("Latin", "LZC", "lower", None, "ab"),
        "a b": ("Latin", "LZ", "lower", None, None),
        "ж\u0301a2": ("Cyrillic+Latin", "LMN", "lower", None, "ж\u0301a2"),
        "𐐨": ("Other", "L", "lower", None, "𐐨"),
        " +.": ("", "PSZ", "none", "punctuation", None),
        " \n": ("", "ZC", "none", "white_space", None),
        "\n\x01": ("", "C", "none", None, None),
        "二": ("Han", "L", "none", None, "二"),
    }
    vocab = BYTES | {text.encode(): 256 + i for i, text in enumerate(by_hand)}
    rows = describe_tokens(Tokenizer.from_vocab(vocab, [])).to_pylist()[256:]
    columns = ("scripts", "categories", "casing", "run", "word")
    assert [tuple(row[name] for name in columns) for row in rows] == [*by_hand.values()]


def test_duplicates_are_one_text_in_nfc_and_each_token_is_a_line() -> None:
    texts = ["é", "e\u0301", "\N{KELVIN SIGN}", "a\xa0\u2028", "\\\n"]
    vocab = BYTES | {text.encode(): 256 + i for i, text in enumerate(texts)} | {b"\xe4b": 261}
    rows = describe_tokens(Tokenizer.from_vocab(vocab, [])).to_pylist()
    found = {row["token_id"]: row["duplicate_of"] for row in rows if row["duplicate_of"] is not None}
    assert found == {257: 256, 258: ord("K")}
    assert [row["text"] for row in rows[258:]] == ["\N{KELVIN SIGN}", r"a\xa0\u2028", r"\\\n", r"\xe4b"]


def test_what_no_text_gives(pairs: Tokenizer) -> None:
    rows = table(pairs)
    assert rows["ab"]["reachable"]
    assert rows[" Th"]["reachable"]
    assert rows["bc"]["reachable"]
    # "ab" is merged before "bc", so "abc" is "ab" and "c"; a space always begins a pre-token
    assert (rows["abc"]["reachable"], rows["abc"]["encodes_to"]) == (False, [256, ord("c")])
    assert (rows["b c"]["reachable"], rows["b c"]["encodes_to"]) == (False, [98, 32, 99])
    assert rows["\\xc3"]["reachable"]
    assert not rows["\\xc0"]["reachable"]


def test_occurrences_in_training(pairs: Tokenizer) -> None:
    counts = np.zeros(pairs.vocab_size, np.uint64)
    counts[[256, 258]] = 7, 2
    rows = table(pairs, training=Occurrences(counts, counts / 2))
    assert (rows["ab"]["num_training"], rows["ab"]["weighted_training"]) == (7, 3.5)
    assert (rows[" T"]["redundant"], rows[" Th"]["redundant"], rows["bc"]["redundant"]) == (True, False, True)
    assert table(pairs)[" T"]["redundant"] is None


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_its_tokens_and_those_that_it_gives_are_reachable(family: str) -> None:
    tok = of_family(family)
    rows = describe_tokens(tok).to_pylist()
    given = set(tok.encode_batch(TEXTS).ids.tolist())
    assert {row["token_id"] for row in rows if row["reachable"] is False}.isdisjoint(given)
    assert [row["token_id"] for row in rows] == list(range(tok.vocab_size))
    assert all(row["encodes_to"] for row in rows if row["reachable"] is False and row["is_utf8"])
    marked = [row for row in rows if row["text"].startswith("▁") and len(row["text"]) > 1]
    assert bool(marked) == (family == "sentencepiece")
    assert all(row["leading_space"] and "▁" not in (row["word"] or "") for row in marked)


ADDED = [b"ab", b"abc", b"abcd", b"xY", b"\xc3\xa9", b"b c", b"\xe4\xb8"]
VOCAB = BYTES | {token: 256 + k for k, token in enumerate(ADDED)}
MERGES = [(b"a", b"b"), (b"ab", b"c"), (b"abc", b"d"), (b"x", b"Y"), (b"\xc3", b"\xa9"), (b"\xe4", b"\xb8")]
TOK = Tokenizer.from_vocab(VOCAB, MERGES)
TOKENS = describe_tokens(TOK)


def counts_of(**given: int) -> np.ndarray:
    counts = np.zeros(TOK.vocab_size, np.uint64)
    for text, number in given.items():
        counts[TOK.vocab[text.encode()]] = number
    return counts


def found(*given, **more) -> list[dict]:
    return find_suspects(TOKENS, *given, **more).to_pylist()


def test_what_was_frequent_in_training_and_does_not_occur() -> None:
    training = {"web": counts_of(ab=100, abcd=300, xY=500), "code": counts_of(ab=90, xY=10)}
    rows = found(counts_of(ab=50, xY=1), training=training)
    by_text = {row["text"]: row for row in rows}
    assert [row["reason"] for row in rows] == ["unreachable", "never_seen", "fragment"]
    assert (rows[0]["text"], rows[1]["text"]) == ("b c", "abcd")
    # 51 tokens were encoded, 1000 counted: 300 * 51 / 1000 are expected
    assert (by_text["abcd"]["expected"], by_text["abcd"]["source"]) == (15.3, "web")
    assert by_text["abcd"]["score"] == round(math.log(16.3), 6)
    assert by_text["abcd"]["num_training"] == 300


def test_the_example_is_the_most_frequent_pretoken_that_holds_it() -> None:
    training = {"web": counts_of(abcd=10)}
    counts = [PretokenCounts.from_dict({b" abcde": 3, b"abcd": 1, b"zabcdz": 6, b"ab": 99, b"cd": 50})]
    rows = found(counts_of(ab=9), training=training, counts=counts)
    assert next(row["example"] for row in rows if row["text"] == "abcd") == "zabcdz"
    more_frequent = {b"%d" % k: 9 + k for k in range(70_000)}
    counts.append(PretokenCounts.from_dict({b"abcdef": 7, b"a": 8, **more_frequent}))
    rows = found(counts_of(ab=9), training=training, counts=counts)
    assert next(row["example"] for row in rows if row["text"] == "abcd") == "abcdef"


def test_without_counts_ranks_and_signs_tell() -> None:
    rows = found(counts_of(ab=80, abc=40, é=20))
    assert [row["reason"] for row in rows] == ["unreachable", "never_seen", "never_seen", "fragment"]
    assert [row["text"] for row in rows] == ["b c", "xY", "abcd", "\\xe4\\xb8"]
    assert {row["num_training"] for row in rows} == {None}
    places = {text: math.log(rank + 1000) for rank, text in enumerate(["ab", "abc", "abcd", "xY", "é"])}
    x = [places[text] for text in ("ab", "abc", "é")]
    slope, start = np.polyfit(x, np.log([80, 40, 20]), 1)
    assert rows[1]["expected"] == pytest.approx(math.exp(start + slope * places["xY"]), abs=1e-3)


def test_signs_by_hand() -> None:
    found = np.array([token == b"ab" for token in TOKENS["token"].to_pylist()], np.float64)
    weights = dict(zip(TOKENS["text"].to_pylist(), signs(TOKENS, found), strict=True))
    latin = TOKENS["scripts"].to_pylist().count("Latin")
    script = math.log(1.5 / (latin + 1))  # one of them occurs
    # a name 5, no variant 1, two characters 0.4; no part of it was merged before
    assert weights["xY"] == pytest.approx(6.4 + script)
    # rank 2 after abc's 1; for ab, at rank 0, what follows at once says nothing
    assert weights["abcd"] == pytest.approx(1.8 + math.log(3 / 2) + script)
    assert weights["ab"] == pytest.approx(1.4 + script)


# Jessica Rumbelow and Matthew Watkins, "SolidGoldMagikarp III: Glitch token archaeology", LessWrong, 2023
# fmt: off
PUBLISHED = (
    *map(chr, [*range(9), *range(14, 28), 127]),
    ".[", "ÃÂÃÂ", "ÃÂÃÂÃÂÃÂ", "wcsstore", "\\.", " practition", " Dragonbound", " guiActive", " \u200b",
    '\\\\\\\\\\\\\\\\', "ÃÂÃÂÃÂÃÂÃÂÃÂÃÂÃÂÃÂÃÂÃÂÃÂÃÂÃÂÃÂÃÂ", " davidjl", "覚醒", '"]=>', " --------",
    " \u200e", "ュ", "ForgeModLoader", "天", " 裏覚醒", "PsyNetMessage", " guiActiveUn", " guiName",
    " externalTo", " unfocusedRange", " guiActiveUnfocused", " guiIcon", " externalToEVA",
    " externalToEVAOnly", "reportprint", "embedreportprint", "cloneembedreportprint", "rawdownload",
    "rawdownloadcloneembedreportprint", "SpaceEngineers", "externalActionCode", "к", "?????-?????-",
    "ーン", "cffff", "MpServer", " gmaxwell", "cffffcc", ' "$:/', " Smartstocks", '":[{"', "龍喚士", '":"","',
    " attRot", "''.", " Mechdragon", " PsyNet", " RandomRedditor", " RandomRedditorWithNo", "ertodd",
    " sqor", " istg", ' "\\', " petertodd", "StreamerBot", "TPPStreamerBot", "FactoryReloaded",
    " partName", "ヤ", '\\">', " Skydragon", "iHUD", "catentry", "ItemThumbnailImage", " UCHIJ",
    " SetFontSize", "DeliveryDate", "quickShip", "quickShipAvailable", "isSpecialOrderable",
    "inventoryQuantity", "channelAvailability", "soType", "soDeliveryDate", "龍契士", "oreAndOnline",
    "InstoreAndOnline", "BuyableInstoreAndOnline", "natureconservancy", "assetsadobe", "\\-",
    "Downloadha", "Nitrome", " TheNitrome", " TheNitromeFan", "GoldMagikarp", "DragonMagazine",
    "TextColor", " srfN", " largeDownload", " srfAttach", "EStreamFrame", "ゼウス", " SolidGoldMagikarp",
    "ーティ", " サーティ", " サーティワン", " Adinida", '":""},{"', "ItemTracker", " DevOnline", "@#&",
    "EngineDebug", " strutConnector", " Leilan", "uyomi", "aterasu", "ÃÂÃÂÃÂÃÂÃÂÃÂÃÂÃÂ", "ÃÂ",
    "ÛÛ", " TAMADRA", "EStream",
)
# fmt: on


def first_suspects(tok: Tokenizer, shared_data: Path) -> list[int]:
    occurrences = np.zeros(tok.vocab_size, np.uint64)
    for name in ("english_docs", "code", "multilingual_docs"):
        data = (shared_data / "corpora" / f"{name}.jsonl.zst").read_bytes()
        lines = zstandard.ZstdDecompressor().stream_reader(data).read().splitlines()
        batch = tok.encode_batch([json.loads(line)["text"] for line in lines], as_text=True)
        occurrences += np.bincount(batch.ids, minlength=tok.vocab_size).astype(np.uint64)
    return find_suspects(describe_tokens(tok), occurrences)["token_id"].to_pylist()


@pytest.mark.shared_data
@pytest.mark.slow
def test_gpt2s_glitch_tokens_are_among_the_first(shared_data) -> None:
    tok = tokenizer.load(shared_data / "vocabs" / "gpt2_vocab.json")
    published = {tok.vocab[name.encode()] for name in PUBLISHED}
    assert len(published) == 141
    first = first_suspects(tok, shared_data)
    hits = [len(published & set(first[:number])) for number in (20, 50, 100, 200)]
    assert all(hit >= least for hit, least in zip(hits, (17, 37, 55, 63), strict=True)), hits


def words(text: str) -> list[str]:
    data = np.frombuffer(text.encode(), np.uint8)
    starts, ends = words_of(data, np.array([0, len(data)]))
    return [data[start:end].tobytes().decode() for start, end in zip(starts, ends, strict=True)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Don't stop: U.S.A. 1,000.5!", ["Don't", "stop", "U.S.A", "1,000.5"]),
        ("漢字 カタカナ ひら", ["漢", "字", "カタカナ", "ひ", "ら"]),
        ("צה\"ל ג'", ['צה"ל', "ג'"]),
        ("हिन्दी été e\u0301te\u0301", ["हिन्दी", "été", "e\u0301te\u0301"]),
        ("😀 ... \n", []),
    ],
)
def test_by_hand(text: str, expected: list[str]) -> None:
    assert words(text) == expected


def test_words_do_not_cross_documents() -> None:
    data = np.frombuffer(b"abcdef", np.uint8)
    starts, ends = words_of(data, np.array([0, 3, 3, 6]))
    assert (starts.tolist(), ends.tolist()) == ([0, 3], [3, 6])


ALPHABET = "ab\u05d01 2.,:_-\n漢ひカー한ไ\u0301\u200dAßπЖ"


@given(st.text(ALPHABET, max_size=30))
def test_boundaries_are_those_of_regex(text: str) -> None:
    """Where the package keeps to the rules: it has its own for apostrophes, marks and runs of spaces."""
    unmarked = regex.sub(r"[\u0301\u200d]", "", text)
    plain = regex.sub(r"(?<= ) |(?<=[カー])_+|_+(?=[カー])", "", unmarked)
    parts = regex.split(r"(?w)\b", plain) if plain else []
    expected = [part for part in parts if regex.match(r"[\p{L}\p{N}_]", part)]
    assert words(plain) == expected
