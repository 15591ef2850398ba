"""`vocab_suspects`: on vocabularies of a few tokens, and on GPT-2's against the published list."""

import json
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import zstandard

from tokmill import tokenizer
from tokmill.tasks.audit import suspects
from tokmill.tasks.audit.suspects import find_suspects, signs
from tokmill.tasks.audit.tokens import describe_tokens
from tokmill.tokenizer import Tokenizer
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts

BYTES = {bytes([byte]): byte for byte in range(256)}
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
    counts = {"web": PretokenCounts.from_dict({b" abcde": 3, b"abcd": 1, b"zabcdz": 6, b"ab": 99, b"cd": 50})}
    rows = found(counts_of(ab=9), training=training, counts=counts)
    assert next(row["example"] for row in rows if row["text"] == "abcd") == "zabcdz"


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


def test_letters_that_are_twice_a_token_are_a_sign_and_rulers_are_none() -> None:
    merges = [(b"q", b"q"), (b"-", b"-")]
    vocab = BYTES | {b"qq": 256, b"--": 257}
    tokens = describe_tokens(Tokenizer.from_vocab(vocab, merges))
    weights = dict(zip(tokens["text"].to_pylist(), signs(tokens, np.ones(len(tokens))), strict=True))
    shares = {
        name: math.log((number + 0.5) / (number + 1))
        for name, number in (
            (scripts, tokens["scripts"].to_pylist().count(scripts)) for scripts in ("Latin", "")
        )
    }
    assert weights["qq"] == pytest.approx(4 + 1.4 + shares["Latin"])
    assert weights["--"] == pytest.approx(1.4 + shares[""])


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

# Llama 3 and Qwen 1.5 begin with cl100k's tokens; these are the ones with the lowest indicators in the
# reports of Sander Land and Max Bartolo, "Fishing for Magikarp", 2024 (github.com/cohere-ai/magikarp)
CL100K = [
    *("$PostalCodesNL", "\tTokenNameIdentifier", " ForCanBeConverted", ";\r\r\r\n", "useRalative", "(stypy"),
    *(" ForCanBeConvertedToF", '">\r\r\n', "PostalCodesNL", " ?>\r\n\r\n", "_ComCallableWrapper"),
    *("Japgolly", " typingsJapgolly", "useRal", " QtAws", "artisanlib"),
]


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


@pytest.mark.slow
@pytest.mark.shared_data
def test_what_models_with_cl100ks_tokens_never_learned_is_found(shared_data) -> None:
    tok = tokenizer.load(shared_data / "vocabs" / "cl100k_base.tiktoken", split_pattern="cl100k")
    known = {tok.vocab[name.encode()] for name in CL100K}
    first = first_suspects(tok, shared_data)
    assert len(known & set(first[:20])) >= 5
    assert known <= set(first)


@pytest.mark.parametrize("steps", [-4, -1, 1, 4])
def test_logarithms_that_differ_in_the_last_places_change_nothing(monkeypatch, steps: int) -> None:
    given = [counts_of(ab=80, abc=40, é=20)], [counts_of(ab=50, xY=1)]
    training = {"web": counts_of(ab=100, abcd=300, xY=500)}
    before = [found(*given[0]), found(*given[1], training=training)]
    moved = {
        "log": lambda x, of=np.log: of(x) + steps * np.spacing(np.abs(of(x))),
        "exp": lambda x, of=np.exp: of(x) + steps * np.spacing(np.abs(of(x))),
    }
    monkeypatch.setattr(suspects, "np", SimpleNamespace(**{**vars(np), **moved}))
    assert [found(*given[0]), found(*given[1], training=training)] == before
