"""Unigram encodes as the slow model and tokenizers do, however sums are rounded, and trains as the model."""

import json
import math
import random
import tempfile
import unicodedata
from functools import cache

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.test_tokenizer.conftest import TRAINING_TEXTS, any_text
from tokmill import tokenizer
from tokmill.tokenizer import Tokenizer
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.reference import unigram as slow
from tokmill.tokenizer.unigram.family import UnigramTrainer
from tokmill.tokenizer.unigram.model import UnigramModel
from tokmill.tokenizer.unigram.seeding import SeedRules, Seeds, TrainingText, find_seeds, prepare

EVERYTHING = r"[\s\S]+"


@pytest.fixture(scope="module")
def trained() -> Tokenizer:
    """A tokenizer that knows a part of the training texts."""
    names = ["<|endoftext|>", "<|end|>"]
    return tokenizer.train(
        TRAINING_TEXTS, family="unigram", vocab_size=90, split_pattern="gpt2", special_tokens=names
    )


def made(scores: dict[bytes, float], split_pattern: str = EVERYTHING) -> Tokenizer:
    """A tokenizer of these pieces; [UNK] is 0."""
    vocabulary = Vocabulary.build(dict(enumerate(scores, 1)), {"[UNK]": 0})
    model = UnigramModel(vocabulary, np.array([0.0, *scores.values()]))
    return Tokenizer(Definition.compose(model, split_pattern=split_pattern))


def test_an_unknown_character_costs_ten_more_than_the_least_piece():
    tok = made({b"x": -3.0, b"xyz": -29.5, b"z": -3.0, b"q": -12.0})

    assert tok.definition.model.unknown_score == -39.5
    assert tok.encode("xyz") == [tok.vocab[b"xyz"]]
    assert tok.encode_with_offsets("xyéz") == ([1, 0, 3], [(0, 1), (1, 3), (3, 4)])


LETTERS = [b"a", b"b", "é".encode(), b"\xff", b"\x80", b"\xc3"]


def strings(size: int) -> st.SearchStrategy[bytes]:
    """Strings of few different characters, well-formed or not."""
    return st.lists(st.sampled_from(LETTERS), min_size=1, max_size=size).map(b"".join)


@given(
    scores=st.dictionaries(strings(4), st.integers(-6, 0).map(float), min_size=1, max_size=20),
    words=st.lists(strings(12), max_size=5),
)
def test_encoding_is_the_references(scores, words):
    tok = made(scores)
    unknown = min(0.0, *scores.values()) - 10
    expected = [[tok.vocab.get(p, 0) for p in slow.best(word, scores, unknown)] for word in words]
    workspace = tok._encoder

    assert [workspace.encode_pretoken(word) for word in words] == expected
    assert [workspace.encode_pretoken(word) for word in words] == expected  # from the cache


@pytest.mark.parametrize("length", [14, 15, 16, 31, 32, 4095, 4096, 4097, 9000])
def test_long_pretokens_are_the_references(length):
    shuffled = random.Random(length)
    scores = {b"a": -2.0, b"b": -2.0, b"ab": -3.5, b"ba": -3.5, b"aba": -5.0, b"x" * 40: -1.0}
    tok, drawn = made(scores), bytes(shuffled.choice(b"aabbc") for _ in range(length))
    for word in (drawn, b"x" * length):
        expected = [tok.vocab.get(piece, 0) for piece in slow.best(word, scores, -15.0)]
        assert tok.encode_batch([word])[0].tolist() == expected


@given(text=any_text())
def test_tokenizers_gives_the_same_ids(trained, text):
    # Other engines have older tables: what Python's own, which are older still, do not know is left out.
    text = "".join(c for c in text if unicodedata.category(c) != "Cn")
    ids = trained.encode(text, allowed_special="all")
    assert in_tokenizers(trained).encode(text).ids == ids
    assert in_tokenizers(trained).decode(ids, skip_special_tokens=False) == trained.decode(ids)


@given(st.lists(st.sampled_from(["ab", "a", "b", "☃", "中国", "\n", " ", "é"]), max_size=8).map("".join))
def test_bytes_of_unknown_characters_side_by_side_lie_where_tokenizers_has_them(text):
    pieces = [("<unk>", 0.0), *((f"<0x{byte:02X}>", 0.0) for byte in range(256))]
    pieces += [("▁", -3.0), ("a", -3.0), ("b", -3.1), ("ab", -2.0), ("é", -4.0)]
    other = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, unk_id=0, byte_fallback=True))
    other.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(prepend_scheme="never")
    steps = tokenizers.decoders
    other.decoder = steps.Sequence(
        [steps.Replace("▁", " "), steps.ByteFallback(), steps.Fuse(), steps.Strip(" ", 1, 0)]
    )
    other.add_special_tokens(["<unk>"])
    with tempfile.TemporaryDirectory() as folder:
        other.save(f"{folder}/tokenizer.json")
        own = tokenizer.load(folder)
    theirs = other.encode(text)
    assert own.encode_with_offsets(text) == (theirs.ids, theirs.offsets)


@cache
def in_tokenizers(tok: Tokenizer) -> tokenizers.Tokenizer:
    with tempfile.TemporaryDirectory() as folder:
        tok.save(folder, "huggingface")
        return tokenizers.Tokenizer.from_file(f"{folder}/tokenizer.json")


@given(texts=st.lists(st.text(alphabet="abcx éß", max_size=30), max_size=5), scores=st.data())
def test_tie_heavy_models_give_the_ids_of_tokenizers(texts, scores):
    pieces = st.text(alphabet="abc éß", min_size=1, max_size=4).map(str.encode)
    drawn = scores.draw(
        st.dictionaries(pieces, st.sampled_from([-1.0, -2.0, -0.1, -0.3]), min_size=1, max_size=12)
    )
    tok = made(drawn, "gpt2")
    other = in_tokenizers(tok)

    assert [other.encode(text).ids for text in texts] == tok.encode_batch(texts).to_lists()


def of_hugging_face(texts: list[str], vocab_size: int) -> tokenizers.Tokenizer:
    other = tokenizers.Tokenizer(tokenizers.models.Unigram())
    pattern = tokenizers.Regex(tokenizer.SPLIT_PATTERNS["gpt2"])
    steps = [tokenizers.pre_tokenizers.Digits(True), tokenizers.pre_tokenizers.Split(pattern, "isolated")]
    other.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(steps)
    other.decoder = tokenizers.decoders.Fuse()
    trainer = tokenizers.trainers.UnigramTrainer(
        vocab_size=vocab_size, special_tokens=["<unk>", "<S>"], unk_token="<unk>", show_progress=False
    )
    other.train_from_iterator(texts, trainer)
    return other


@pytest.mark.slow
@pytest.mark.shared_data
def test_real_text_gets_the_ids_of_tokenizers(shared_data, tmp_path):
    texts = {path.stem: path.read_text().splitlines() for path in (shared_data / "ntrex").glob("*.txt")}
    other = of_hugging_face([*texts["eng"], *texts["rus"], *texts["jpn"]], 4000)
    other.save(str(tmp_path / "tokenizer.json"))
    tok = tokenizer.load(tmp_path)

    for lines in texts.values():
        assert [found.ids for found in other.encode_batch(lines)] == tok.encode_batch(lines).to_lists()


def test_bytes_for_unknown_characters_are_in_a_tokenizer_json(tmp_path):
    how = {"family": "unigram", "vocab_size": 400, "byte_fallback": True, "allow_smaller": True}
    tok = tokenizer.train(["the quick brown fox <0x41> and others"] * 3, **how)
    file = next(path for path in tok.save(tmp_path, "huggingface") if path.name == "tokenizer.json")
    other = tokenizers.Tokenizer.from_file(str(file))
    for text in ("the fox", "日本 <0x41>", "I'd 12\n", "a<0x0A>b", ""):
        ids = tok.encode(text)
        assert other.encode(text, add_special_tokens=False).ids == ids
        assert other.decode(ids, skip_special_tokens=False) == text == tok.decode(ids)
    again = tokenizer.load(file)
    assert again.definition.tokens == tok.definition.tokens
    assert again.encode("日本 fox") == tok.encode("日本 fox")


def test_files_have_scores_as_python_writes_them(tmp_path):
    tok = made({b"a": -1e-05, b"b": -0.5})
    (file,) = tok.save(tmp_path)
    assert "-1e-05" in file.read_text()
    assert tokenizer.load(file) == tok


def test_tokenizers_reads_trained_scores_as_they_are(tmp_path):
    """Numbers of 17 digits would be read one off in the last place, and decide between equal sums."""
    texts = [*TRAINING_TEXTS, "~~ ~~~ ~~~~~ /// //////// 1 == === ====="] * 3
    tok = tokenizer.train(texts, family="unigram", vocab_size=400, allow_smaller=True)
    (file,) = (path for path in tok.save(tmp_path, "huggingface") if path.name == "tokenizer.json")
    other = tokenizers.Tokenizer.from_file(str(file))
    read = [score for _, score in json.loads(other.to_str())["model"]["vocab"]]
    assert read == tok.definition.model.scores.tolist()
    rows = [f" ^{mark * length}" for mark in "~/=" for length in range(1, 80)]
    assert [found.ids for found in other.encode_batch(rows)] == tok.encode_batch(rows).to_lists()
    loaded = tokenizer.load(tmp_path)
    assert loaded.encode_batch(rows).to_lists() == tok.encode_batch(rows).to_lists()


PIECES = ["▁", "▁a", "▁b", "a", "b", "ab", "ba", "aab", "abb", "▁ab", "▁▁", "今", "今日", "日", "b▁", "é"]
ALPHABET = ["a", "b", "▁", "今", "日", "c", "ab▁", "▁abba", "é"]


def rounded(score: float) -> float:
    return float(np.float32(score))


def made_single(scores: dict[str, float], *, with_bytes: bool) -> Tokenizer:
    """A tokenizer of these pieces, whose sums are rounded; [UNK] is 0."""
    tokens = dict(enumerate((piece.encode() for piece in scores), 1))
    values = [0.0, *scores.values()]
    standing_in = range(len(values), len(values) + 256) if with_bytes else range(0)
    tokens |= {i: bytes([byte]) for byte, i in enumerate(standing_in)}
    vocabulary = Vocabulary.build(tokens, {"[UNK]": 0}, 0, list(standing_in))
    scores_32 = np.array([*values, *[0.0] * len(standing_in)], np.float32).astype(np.float64)
    model = UnigramModel(vocabulary, scores_32, precision="single")
    return Tokenizer(Definition.compose(model, split_pattern=r"[\s\S]+"))


def single_ids(tok: Tokenizer, text: str) -> list[int]:
    model = tok.definition.model
    assert isinstance(model, UnigramModel)
    known = {t: i for i, t in model.vocabulary.ordinary() if i not in model.vocabulary.byte_ids}
    scores = {token: float(model.scores[i]) for token, i in known.items()}
    return [
        known.get(piece, 0) for piece in slow.best(text.encode(), scores, model.unknown_score, rounded, -1e5)
    ]


def ids_twice(tok: Tokenizer, text: str, times: int = 2) -> list[list[int]]:
    """Encode a text several times, which remembers its parts, after much else of it."""
    return tok.encode_batch([text[: len(text) // 2], *[text] * times], as_text=True).to_lists()[1:]


def near_ties(seed: int) -> dict[str, float]:
    """Scores that add up to almost the same in many ways."""
    random_ = random.Random(seed)
    return {
        piece: -len(piece) * random_.choice([1.1, 3.7]) * (1 + random_.choice([0, 1e-7, 1e-6, 1e-4]))
        for piece in PIECES
    }


@pytest.mark.parametrize("seed", range(6))
@settings(max_examples=40)
@given(text=st.lists(st.sampled_from(ALPHABET), max_size=60).map("".join))
def test_short_texts_have_the_ids_of_the_slow_model(seed, text):
    tok = _SINGLE.setdefault(seed, made_single(near_ties(seed), with_bytes=False))
    assert ids_twice(tok, text) == [single_ids(tok, text)] * 2


_SINGLE: dict[int, Tokenizer] = {}


def test_unknown_characters_become_their_bytes_and_neighbours_one_token():
    scores = {"a": -1.0, "▁a": -1.5}
    assert ids_twice(made_single(scores, with_bytes=False), "ccc▁▁a▁ca") == [[0, 2, 0, 1]] * 2
    ids = ids_twice(made_single(scores, with_bytes=True), "c▁a")
    assert ids == [[3 + ord("c"), 2]] * 2


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("size", [30, 3_000, 60_000])
def test_adding_begins_again_where_a_sum_is_low(seed, size):
    """Once in a long text, in every second word, or at every character."""
    random_ = random.Random(seed)
    words = ["".join(random_.choices(ALPHABET, k=random_.randint(1, 9))) for _ in range(40)]
    text = "".join(random_.choices(words, k=400))
    tok = made_single({piece: score * size for piece, score in near_ties(seed).items()}, with_bytes=False)
    assert ids_twice(tok, text) == [single_ids(tok, text)] * 2


def text_of(counts: dict[bytes, int], coverage: float = 1.0) -> TrainingText:
    return prepare(PretokenCounts.from_dict(counts), 1, coverage, ())


def trainer_of(counts: dict[bytes, int], scores: dict[bytes, float]) -> UnigramTrainer:
    """A trainer whose pieces have these scores, in order of their bytes."""
    strings = sorted(scores)
    single = np.array([len(slow.characters(string)) == 1 for string in strings])
    trainer = UnigramTrainer(text_of(counts), Seeds(strings, np.ones(len(strings)), single))
    trainer.scores[:] = [scores[string] for string in strings]
    return trainer


COUNTS = st.dictionaries(
    st.text(alphabet="abé天", min_size=1, max_size=9).map(str.encode),
    st.integers(1, 6),
    min_size=1,
    max_size=9,
)


@given(counts=COUNTS, number=st.integers(0, 30), longest=st.integers(1, 5))
def test_seeds_are_the_best_substrings(counts, number, longest):
    found = find_seeds(text_of(counts), SeedRules("substrings", number, 1, longest, 1000))

    assert dict(zip(found.strings, found.scores.tolist(), strict=True)) == slow.seeds(counts, number, longest)


@given(counts=COUNTS, chances=st.lists(st.floats(-8, -0.5), min_size=40, max_size=40))
def test_expected_counts_are_those_of_all_segmentations(counts, chances):
    pieces = sorted(slow.seeds(counts, 20))
    scores = dict(zip(pieces, chances, strict=False))
    expected, likelihood = slow.expected(counts, scores)
    trainer = trainer_of(counts, scores)
    trainer._improve()

    single = [len(slow.characters(piece)) == 1 for piece in pieces]
    kept = {p: max(expected[p], 0.5) if one else expected[p] for p, one in zip(pieces, single, strict=True)}
    total = sum(n for n in kept.values() if n >= 0.5)
    assert trainer.likelihood == pytest.approx(likelihood)
    for piece, score in zip(pieces, trainer.scores, strict=True):
        if abs(kept[piece] - 0.5) > 1e-9 or (piece in scores and kept[piece] == 0.5):
            wanted = digamma(kept[piece]) - digamma(total) if kept[piece] >= 0.5 else -math.inf
            assert score == pytest.approx(wanted, abs=1e-5)  # scores are rounded


def digamma(x: float) -> float:
    """The derivative of the logarithm of gamma, numerically."""
    step = 1e-5
    return (math.lgamma(x + step) - math.lgamma(x - step)) / (2 * step)


@given(counts=COUNTS, chances=st.lists(st.floats(-8, -0.5), min_size=40, max_size=40))
def test_losses_are_those_of_the_best_other_segmentation(counts, chances):
    scores = dict(zip(sorted(slow.seeds(counts, 20)), chances, strict=False))
    trainer, frequencies = trainer_of(counts, scores), np.zeros(len(scores))
    for word, count in counts.items():
        for piece in slow.best(word, scores):
            frequencies[sorted(scores).index(piece)] += count

    found = trainer._losses(frequencies)

    wanted = [slow.losses(counts, scores)[piece] for piece in sorted(scores)]
    assert found.tolist() == pytest.approx(wanted, abs=1e-5 * max(1.0, float(frequencies.max())))


def test_long_and_short_pretokens_are_expected_alike():
    word, scores = b"ab" * 400, {b"a": -2.0, b"b": -1.5, b"ab": -2.5, b"ba": -3.0}
    trainer = trainer_of({word: 3}, scores)
    ways = [0.0] + [-math.inf] * len(word)
    for end in range(1, len(word) + 1):
        steps = [(word[end - n : end], ways[end - n]) for n in (1, 2) if n <= end]
        ways[end] = np.logaddexp.reduce([way + scores[piece] for piece, way in steps if piece in scores])
    trainer._improve()

    assert trainer.likelihood == pytest.approx(3 * ways[-1])


def test_rare_characters_may_stay_unknown():
    counts = {b"abab": 50, b"ab\xe5\xa4\xa9ab": 1, b"ba": 9}
    tok = tokenizer.train_from_counts(counts, vocab_size=4, family="unigram", character_coverage=0.99)

    assert "天".encode() not in tok.vocab
    assert tok.encode("天") == [0]


@pytest.mark.parametrize("seed", ["substrings", "words"])
def test_pieces_are_no_longer_than_asked(seed):
    counts = {b"\xff\xfe\xff\xfe": 90, b"\xff\xfe": 9, "天地".encode(): 50, b"ab": 5}
    tok = tokenizer.train_from_counts(counts, vocab_size=8, family="unigram", seed=seed, max_token_bytes=2)

    pieces = [token for token in tok.vocab if token != b"[UNK]"]
    assert {b"\xff\xfe", "天".encode()} <= set(pieces)
    assert all(len(piece) <= 2 or len(slow.characters(piece)) == 1 for piece in pieces)
