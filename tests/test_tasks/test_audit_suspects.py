"""`vocab_suspects` on small vocabularies of every family, by another formula,
and against a published list."""

import io
import json

import duckdb
import numpy as np
import pyarrow as pa
import pytest
import zstandard

from tokmill import tokenizer
from tokmill.tasks.audit.expected import Merges, by_rank, hints, uses
from tokmill.tasks.audit.suspects import SCHEMA, find_suspects
from tokmill.tasks.audit.tokens import Occurrences, describe_tokens
from tokmill.tokenizer import Tokenizer

BYTES = {bytes([byte]): byte for byte in range(256)}
MERGES = [(b"a", b"b"), (b"c", b"d"), (b"ab", b"cd"), (b"e", b"F"), (b"\xe2", b"\x82"), (b"x", b"x")]
VOCAB = BYTES | {left + right: 256 + i for i, (left, right) in enumerate(MERGES)} | {b"q w": 262}
AB, CD, ABCD, EF, EURO, XX, QW = range(256, 263)
TOK = Tokenizer.from_vocab(VOCAB, MERGES, special_tokens={"<|end|>": 263})


def counts(tok: Tokenizer, **found: int) -> np.ndarray:
    result = np.zeros(tok.vocab_size, np.uint64)
    for token, number in found.items():
        result[tok.vocab[token.encode()]] = number
    return result


def by_text(table: pa.Table) -> dict[str, dict]:
    assert table.schema == SCHEMA
    assert table["rank"].to_pylist() == list(range(1, len(table) + 1))
    scores = table["score"].to_pylist()
    assert scores == sorted(scores, reverse=True)
    return {row["text"]: row for row in table.to_pylist()}


def test_reasons_by_hand() -> None:
    tokens = describe_tokens(TOK)
    rows = by_text(find_suspects(tokens, counts(TOK, ab=5, cd=5)))
    assert rows["abcd"]["reason"] == "never_seen"
    assert rows["\\xe2\\x82"]["reason"] == "fragment"
    assert rows["q w"]["reason"] == "unreachable"
    assert "\\xe2" not in rows  # a single byte of a character is normal
    assert not {"<|end|>", "ab", "cd"} & set(rows)
    assert rows["abcd"]["example"] is None
    assert by_text(find_suspects(tokens, counts(TOK, ab=5)))["cd"]["example"] == "abcd"


def test_a_use_is_counted_inside_longer_tokens() -> None:
    merges = Merges.of(describe_tokens(TOK), TOK.vocab_size)
    found = uses(merges.merged, merges.left, merges.right, counts(TOK, abcd=3, ab=2, xx=4))
    assert [found[token] for token in (AB, CD, ABCD, EF, XX)] == [5, 3, 3, 0, 4]
    assert (found[ord("a")], found[ord("d")], found[ord("x")]) == (5, 3, 8)


def test_hints_by_hand() -> None:
    tokens = describe_tokens(TOK)
    bits = hints(Merges.of(tokens, TOK.vocab_size), counts(TOK, ab=1))
    latin = [row["token_id"] for row in tokens.to_pylist() if row["scripts"] == "Latin"]
    script = np.log2(1.5 / (len(latin) + 1))
    # abcd is merged one after cd: 3 / 2 of a bit's argument; cd has rank 1
    assert bits[ABCD] == pytest.approx(script + np.log2(3 / 2))
    assert bits[CD] == pytest.approx(script)  # (1 + 1) / (1 + 1)
    assert bits[EF] == pytest.approx(script + 8)
    assert bits[XX] == pytest.approx(script + 6)


def test_the_training_counts_tell_what_to_expect() -> None:
    training = counts(TOK, ab=60, cd=30, xx=10)
    tokens = describe_tokens(TOK, Occurrences(training, training.astype(float)))
    rows = by_text(
        find_suspects(
            tokens,
            counts(TOK, ab=199, cd=1),
            training_by_source={"one": counts(TOK, ab=60), "two": counts(TOK, cd=30, xx=10)},
            by_source={"three": counts(TOK, ab=199, cd=1)},
        )
    )
    assert (rows["xx"]["expected"], rows["xx"]["source"]) == (20.0, "two")
    assert rows["xx"]["score"] == pytest.approx(np.log2(21), abs=1e-6)
    assert "cd" not in rows  # 60 expected, 1 seen: fewer than 1/64 is 0.94 - 1
    assert rows["abcd"]["score"] == 0
    more = counts(TOK, ab=1999, cd=1)
    cd = by_text(find_suspects(tokens, more))["cd"]
    assert (cd["reason"], cd["expected"], cd["source"]) == ("rare", 600.0, None)


def test_the_line_through_ranks_is_that_of_sql() -> None:
    generator = np.random.default_rng(1)
    rank = generator.permutation(500).astype(np.int64)
    used = np.floor(np.exp2(generator.normal(4, 3, 500)))
    table = pa.table({"x": np.log2(rank + 1.0), "y": used})
    query = "SELECT exp2(regr_intercept(log2(y), t.x) + regr_slope(log2(y), t.x) * 3) FROM t WHERE y > 0"
    query = query.replace("exp2(", "pow(2, ")
    with duckdb.connect() as database:
        database.register("t", table)
        row = database.execute(query).fetchone()
    assert row is not None
    assert by_rank(rank, used)[rank == 7] == pytest.approx(row[0])


@pytest.mark.parametrize("used", [[0, 0, 0], [5, 0, 0]])
def test_too_little_text_tells_nothing_to_expect(used: list[int]) -> None:
    assert np.isnan(by_rank(np.arange(3), np.array(used, np.float64))).all()


def test_an_indicator_adds_what_is_under_trained() -> None:
    indicator = np.tile([1.0, 2.0, 3.0], 88)
    indicator[ord("z")] = -50.0
    seen = np.ones(TOK.vocab_size, np.uint64)
    rows = by_text(find_suspects(describe_tokens(TOK), seen, indicator=indicator))
    assert set(rows) == {"z"}
    # the median is 2 and the median deviation 1; a byte has no rank, so nothing is expected of it
    assert rows["z"]["reason"] == "under_trained"
    without = Merges.of(describe_tokens(TOK), TOK.vocab_size)
    assert rows["z"]["score"] == pytest.approx(hints(without, seen)[ord("z")] + 52 / 1.4826, abs=1e-5)


def test_arrays_of_another_vocabulary_are_refused() -> None:
    with pytest.raises(ValueError, match="indicator has 3 ids, occurrences 264"):
        find_suspects(describe_tokens(TOK), counts(TOK), indicator=np.zeros(3))


TEXTS = ["the cat sat on the mat, the cats sit", "unhappy cats unwind", "mats and hats"] * 3
FAMILIES = {
    "wordpiece": {"split_pattern": "bert", "special_tokens": ["[UNK]"]},
    "word_bpe": {"special_tokens": ["[UNK]"]},
    "unigram": {"special_tokens": ["[UNK]"]},
    "sentencepiece": {"family": "unigram", "mode": "sentencepiece"},
    "char_bpe": {"special_tokens": ["[UNK]"]},
    "word_level": {"special_tokens": ["[UNK]"]},
    "character_level": {"special_tokens": ["[UNK]"]},
    "byte_bpe": {},
}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_lists_what_its_text_never_gives(family: str) -> None:
    options = {"family": family, **FAMILIES[family]}
    tok = tokenizer.train(TEXTS, vocab_size=300, allow_smaller=True, **options)
    seen = np.bincount(tok.encode("the cat"), minlength=tok.vocab_size).astype(np.uint64)
    tokens = describe_tokens(tok)
    table = find_suspects(tokens, seen)
    by_text(table)
    suspects = {
        row["token_id"]
        for row in tokens.to_pylist()
        if row["reachable"] is not None
        and not seen[row["token_id"]]
        and (row["is_utf8"] or row["num_bytes"] > 1)
    }
    listed = table.to_pylist()
    assert {row["token_id"] for row in listed if row["reason"] != "rare"} == suspects
    assert not any(value != value for row in listed for value in (row["score"], row["expected"]))
    assert table.equals(find_suspects(tokens, seen))


# Rumbelow and Watkins, "SolidGoldMagikarp III: Glitch token archaeology" (2023),
# greaterwrong.com/posts/8viQEp8KBg2QSW4Yc: the whole list, with control characters first.
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


def tokens_of(tok: Tokenizer, texts: list[str]) -> np.ndarray:
    ids = tok.encode_batch(texts, as_text=True).ids
    return np.bincount(ids, minlength=tok.vocab_size).astype(np.uint64)


@pytest.mark.shared_data
def test_gpt2s_known_glitch_tokens_are_among_its_first_suspects(shared_data) -> None:
    tok = tokenizer.load(shared_data / "vocabs" / "gpt2_vocab.json", split_pattern="gpt2")
    seen = np.zeros(tok.vocab_size, np.uint64)
    for path in sorted((shared_data / "corpora").glob("*.zst")):
        with path.open("rb") as file:
            lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), "utf-8")
            texts = [json.loads(line)["text"] for line in lines]
        seen += tokens_of(tok, texts)
    for path in sorted((shared_data / "ntrex").glob("*.txt")):
        seen += tokens_of(tok, path.read_text("utf-8").split("\n"))
    listed = find_suspects(describe_tokens(tok, None, seen > 0), seen)["token_id"].to_pylist()
    known = {tok.vocab[text.encode()] for text in PUBLISHED}
    assert len(known) == len(PUBLISHED) == 141
    found = {number: len(known & set(listed[:number])) for number in (50, 100, 200)}
    assert found[50] >= 35, found
    assert found[100] >= 50, found
    assert found[200] >= 60, found
    unseen = {token for token in known if not seen[token]}
    assert unseen <= set(listed)
