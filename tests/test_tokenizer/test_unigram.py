"""Unigram tokenizers: by hand, against the slow model, and against `tokenizers`."""

import json
import math
import os
import random
import subprocess
import sys
import tempfile
import unicodedata
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from tests.test_tokenizer.conftest import TRAINING_TEXTS, any_text
from tokmill import tokenizer
from tokmill.tokenizer import (
    FormatError,
    Tokenizer,
    TokenizerError,
    TrainingError,
    VocabularyError,
    attestation,
)
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.reference import unigram as slow
from tokmill.tokenizer.unigram.family import UnigramTrainer
from tokmill.tokenizer.unigram.model import UnigramModel, scores_of
from tokmill.tokenizer.unigram.seeding import SeedRules, Seeds, TrainingText, find_seeds, prepare

SPECIALS = ["<|endoftext|>", "<|end|>"]
WORDS = {b"hug": 10, b"pug": 5, b"pun": 12, b"bun": 4, b"hugs": 5}
EVERYTHING = r"[\s\S]+"


@pytest.fixture(scope="session")
def trained() -> Tokenizer:
    """A tokenizer that knows a part of the training texts."""
    return tokenizer.train(
        TRAINING_TEXTS,
        family="unigram",
        vocab_size=90,
        split_pattern="gpt2",
        special_tokens=SPECIALS,
        num_reserved=1,
    )


def made(scores: dict[bytes, float], split_pattern: str = EVERYTHING) -> Tokenizer:
    """A tokenizer of these pieces; [UNK] is 0."""
    vocabulary = Vocabulary.build(dict(enumerate(scores, 1)), {"[UNK]": 0})
    model = UnigramModel(vocabulary, np.array([0.0, *scores.values()]))
    return Tokenizer(Definition.compose(model, split_pattern=split_pattern))


def text_of(counts: dict[bytes, int], coverage: float = 1.0) -> TrainingText:
    """The text of a training."""
    return prepare(PretokenCounts.from_dict(counts), 1, coverage, ())


def trainer_of(counts: dict[bytes, int], scores: dict[bytes, float]) -> UnigramTrainer:
    """A trainer whose pieces have these scores, in order of their bytes."""
    strings = sorted(scores)
    single = np.array([len(slow.characters(string)) == 1 for string in strings])
    trainer = UnigramTrainer(text_of(counts), Seeds(strings, np.ones(len(strings)), single))
    trainer.scores[:] = [scores[string] for string in strings]
    return trainer


def test_the_textbooks_example_by_hand() -> None:
    pieces = {p: n for p, n in slow.substrings(WORDS).items() if p not in WORDS or p == b"hug"}
    scores = {piece: math.log(n / 210) for piece, n in pieces.items()}
    tok = made(scores)

    assert sum(pieces.values()) == 210
    assert [tok.token_bytes(i) for i in tok.encode("pug")] == [b"p", b"ug"]
    assert math.exp(scores[b"p"] + scores[b"ug"]) == pytest.approx(0.0077, abs=5e-5)
    assert slow.loss(WORDS, scores) == pytest.approx(169.8, abs=0.05)
    without = {left: slow.loss(WORDS, scores | {left: -math.inf}) for left in (b"pu", b"hug")}
    assert without[b"pu"] == pytest.approx(slow.loss(WORDS, scores))
    assert without[b"hug"] > slow.loss(WORDS, scores) + 20


def test_of_equal_paths_the_one_with_the_longest_last_piece_is_taken() -> None:
    tok = made({b"a": -1.0, b"b": -1.0, b"c": -1.0, b"ab": -1.0, b"bc": -1.0})

    assert tok.encode("abc") == [tok.vocab[b"a"], tok.vocab[b"bc"]]


def test_an_unknown_character_costs_ten_more_than_the_least_piece() -> None:
    tok = made({b"x": -3.0, b"xyz": -29.5, b"z": -3.0, b"q": -12.0})

    assert tok.definition.model.unknown_score == -39.5
    assert tok.encode("xyz") == [tok.vocab[b"xyz"]]
    assert tok.encode("xyyz") == [tok.vocab[b"x"], 0, tok.vocab[b"z"]]
    assert tok.encode_with_offsets("xyéz")[1] == [(0, 1), (1, 3), (3, 4)]
    assert tok.decode(tok.encode("xyéz")) == "x[UNK]z"


LETTERS = [b"a", b"b", "é".encode(), b"\xff", b"\x80", b"\xc3"]


def strings(size: int) -> st.SearchStrategy[bytes]:
    """Strings of few different characters, well-formed or not."""
    return st.lists(st.sampled_from(LETTERS), min_size=1, max_size=size).map(b"".join)


@given(
    scores=st.dictionaries(strings(4), st.integers(-6, 0).map(float), min_size=1, max_size=20),
    words=st.lists(strings(12), max_size=5),
)
def test_encoding_is_the_references(scores: dict[bytes, float], words: list[bytes]) -> None:
    tok = made(scores)
    unknown = min(0.0, *scores.values()) - 10
    expected = [[tok.vocab.get(p, 0) for p in slow.best(word, scores, unknown)] for word in words]
    workspace = tok._encoder

    assert [workspace.encode_pretoken(word) for word in words] == expected
    assert [workspace.encode_pretoken(word) for word in words] == expected  # from the cache


@given(scores=st.dictionaries(strings(3), st.floats(-9, -1), min_size=1, max_size=9), word=strings(8))
def test_the_best_segmentation_is_the_best_of_all(scores: dict[bytes, float], word: bytes) -> None:
    every = slow.segmentations(word, scores)

    if every:
        best = slow.best(word, scores)
        assert best in every
        assert slow.total(best, scores) == pytest.approx(max(slow.total(cut, scores) for cut in every))


@pytest.mark.parametrize("length", [14, 15, 16, 31, 32, 4095, 4096, 4097, 9000])
def test_long_pretokens_are_the_references(length: int) -> None:
    shuffled = random.Random(length)
    scores = {b"a": -2.0, b"b": -2.0, b"ab": -3.5, b"ba": -3.5, b"aba": -5.0, b"x" * 40: -1.0}
    tok, drawn = made(scores), bytes(shuffled.choice(b"aabbc") for _ in range(length))
    for word in (drawn, b"x" * length):
        expected = [tok.vocab.get(piece, 0) for piece in slow.best(word, scores, -15.0)]
        assert tok.encode_batch([word])[0].tolist() == expected


@given(st.lists(any_text(), max_size=6))
def test_batches_streams_and_decoding_agree(trained: Tokenizer, texts: list[str]) -> None:
    batch = trained.encode_batch(texts, as_text=True)

    assert [trained.encode(text, as_text=True) for text in texts] == batch.to_lists()
    assert list(trained.encode_iterable(texts, as_text=True)) == trained.encode("".join(texts), as_text=True)
    for text in texts:
        ids, spans = trained.encode_with_offsets(text, allowed_special="all")
        parts = [text[start:end] for start, end in spans]
        shown = ["[UNK]" if token == 0 else part for token, part in zip(ids, parts, strict=True)]
        assert "".join(parts) == text
        assert trained.decode(ids) == "".join(shown)


def test_threads_and_batches_change_no_id(trained: Tokenizer) -> None:
    texts = TRAINING_TEXTS * 2000
    alone = trained.encode_batch(texts)

    assert np.array_equal(trained.encode_batch(texts, num_threads=2).ids, alone.ids)
    assert alone[7].tolist() == trained.encode(texts[7])


COUNTS = st.dictionaries(
    st.text(alphabet="abé天", min_size=1, max_size=9).map(str.encode),
    st.integers(1, 6),
    min_size=1,
    max_size=9,
)


@given(counts=COUNTS, number=st.integers(0, 30), longest=st.integers(1, 5))
def test_seeds_are_the_best_substrings(counts: dict[bytes, int], number: int, longest: int) -> None:
    found = find_seeds(text_of(counts), SeedRules("substrings", number, 1, longest, 1000))

    assert dict(zip(found.strings, found.scores.tolist(), strict=True)) == slow.seeds(counts, number, longest)


def test_seeds_may_be_words() -> None:
    counts = {b"hug": 10, b"hugs": 5, b"hugged": 1, b"a": 9}
    found = find_seeds(text_of(counts), SeedRules("words", 9, 1, 16, 1000))

    assert {s for s, c in zip(found.strings, found.characters, strict=True) if not c} == {b"hug", b"hugs"}


@given(counts=COUNTS, chances=st.lists(st.floats(-8, -0.5), min_size=40, max_size=40))
def test_expected_counts_are_those_of_all_segmentations(
    counts: dict[bytes, int], chances: list[float]
) -> None:
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
def test_losses_are_those_of_the_best_other_segmentation(
    counts: dict[bytes, int], chances: list[float]
) -> None:
    scores = dict(zip(sorted(slow.seeds(counts, 20)), chances, strict=False))
    trainer, frequencies = trainer_of(counts, scores), np.zeros(len(scores))
    for word, count in counts.items():
        for piece in slow.best(word, scores):
            frequencies[sorted(scores).index(piece)] += count

    found = trainer._losses(frequencies)

    wanted = [slow.losses(counts, scores)[piece] for piece in sorted(scores)]
    assert found.tolist() == pytest.approx(wanted, abs=1e-5 * max(1.0, float(frequencies.max())))


def test_long_and_short_pretokens_are_expected_alike() -> None:
    word, scores = b"ab" * 400, {b"a": -2.0, b"b": -1.5, b"ab": -2.5, b"ba": -3.0}
    trainer = trainer_of({word: 3}, scores)
    ways = [0.0] + [-math.inf] * len(word)
    for end in range(1, len(word) + 1):
        steps = [(word[end - n : end], ways[end - n]) for n in (1, 2) if n <= end]
        ways[end] = np.logaddexp.reduce([way + scores[piece] for piece, way in steps if piece in scores])
    trainer._improve()

    assert trainer.likelihood == pytest.approx(3 * ways[-1])


def test_order_and_threads_change_nothing() -> None:
    counts = tokenizer.count_pretokens(TRAINING_TEXTS).to_dict()
    shuffled = list(counts)
    random.Random(1).shuffle(shuffled)
    how = {"family": "unigram", "vocab_size": 80}
    alone = tokenizer.train_from_counts(counts, **how)

    assert tokenizer.train_from_counts({word: counts[word] for word in shuffled}, **how) == alone
    assert tokenizer.train_from_counts(counts, num_threads=2, **how) == alone
    assert tokenizer.train(TRAINING_TEXTS, num_threads=2, **how) == alone


def test_a_sweep_is_each_size_alone() -> None:
    counts = tokenizer.count_pretokens(TRAINING_TEXTS)
    sizes = [75, 90, 80]
    several = tokenizer.train_sweep_from_counts(counts, vocab_sizes=sizes, family="unigram")

    assert [tok.vocab_size for tok in several] == sizes
    assert several == [
        tokenizer.train_from_counts(counts, vocab_size=size, family="unigram") for size in sizes
    ]


def test_counts_in_smaller_units_train_the_same() -> None:
    counts = tokenizer.count_pretokens(TRAINING_TEXTS).to_dict()
    finer = {word: 1000 * count for word, count in counts.items()}
    how = {"family": "unigram", "vocab_size": 80}

    assert tokenizer.train_from_counts(finer, count_unit=1000, **how) == tokenizer.train_from_counts(
        counts, **how
    )


def test_every_character_is_a_piece_and_more_is_more_probable() -> None:
    tok = tokenizer.train(TRAINING_TEXTS, vocab_size=78, family="unigram")
    larger = tokenizer.train(TRAINING_TEXTS, vocab_size=94, family="unigram")

    assert {c.encode() for text in TRAINING_TEXTS for c in text} <= tok.vocab.keys()
    assert 0 not in tok.encode("".join(TRAINING_TEXTS))
    assert larger.count_tokens(TRAINING_TEXTS[0]) < tok.count_tokens(TRAINING_TEXTS[0])


def test_rare_characters_may_stay_unknown() -> None:
    counts = {b"abab": 50, b"ab\xe5\xa4\xa9ab": 1, b"ba": 9}
    tok = tokenizer.train_from_counts(counts, vocab_size=4, family="unigram", character_coverage=0.99)

    assert "天".encode() not in tok.vocab
    assert tok.encode("天") == [0]


def test_text_that_is_no_utf8_is_learned_and_kept(tmp_path: Path) -> None:
    counts = {b"\xff\xfe\xff\xfe": 9, b"a\xc3\xa9": 5, b"\x80a": 4, b"\xc3": 3}
    tok = tokenizer.train_from_counts(counts, vocab_size=8, family="unigram")

    assert tok.decode_bytes(tok.encode(b"\xff\xfe\xff\xfea\xc3\xa9\xc3")) == b"\xff\xfe\xff\xfea\xc3\xa9\xc3"
    assert tokenizer.load(tok.save(tmp_path)[0]) == tok
    with pytest.raises(FormatError, match="not UTF-8"):
        tok.save(tmp_path / "other", "huggingface")


@pytest.mark.parametrize("seed", ["substrings", "words"])
def test_pieces_are_no_longer_than_asked(seed: str) -> None:
    counts = {b"\xff\xfe\xff\xfe": 90, b"\xff\xfe": 9, "天地".encode(): 50, b"ab": 5}
    tok = tokenizer.train_from_counts(counts, vocab_size=8, family="unigram", seed=seed, max_token_bytes=2)

    pieces = [token for token in tok.vocab if token != b"[UNK]"]
    assert {b"\xff\xfe", "天".encode()} <= set(pieces)
    assert all(len(piece) <= 2 or len(slow.characters(piece)) == 1 for piece in pieces)


@pytest.mark.parametrize(
    ("how", "what"),
    [
        ({"vocab_size": 6}, "too small for 7 characters .* use at least 8"),
        ({"vocab_size": 500}, "only .* pieces .* lower vocab_size to"),
        ({"vocab_size": 9, "tie_break": "lowest_ids"}, "tie_break"),
        ({"vocab_size": 9, "seed": "merges"}, "seed='merges' is not known"),
        ({"vocab_size": 9, "shrinking_factor": 1.5}, "shrinking_factor=1.5"),
        ({"vocab_size": 9, "character_coverage": 0.0}, "character_coverage=0.0"),
        ({"vocab_size": 9, "seed_size": -1}, "seed_size=-1"),
    ],
)
def test_trainings_that_cannot_be(how: dict[str, object], what: str) -> None:
    with pytest.raises(TrainingError, match=what):
        tokenizer.train_from_counts(WORDS, family="unigram", **how)


def test_too_few_pieces_say_how_many_there_are() -> None:
    with pytest.raises(TrainingError) as refused:
        tokenizer.train_from_counts(WORDS, family="unigram", vocab_size=500)
    size = int(str(refused.value).split("lower vocab_size to ")[1].split(",")[0])

    assert tokenizer.train_from_counts(WORDS, family="unigram", vocab_size=size).vocab_size == size


def test_an_empty_corpus_is_refused() -> None:
    for counts in ({}, {b"": 3}, {b"a": 0}):
        with pytest.raises(TrainingError, match="text is empty"):
            tokenizer.train_from_counts(counts, family="unigram", vocab_size=9)


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf, 0.5, "1", None, True, [1]])
def test_scores_that_are_none_are_refused(score: object) -> None:
    vocabulary = Vocabulary.build({1: b"a", 2: b"b"}, {"[UNK]": 0})

    with pytest.raises(VocabularyError, match="the score of id 2"):
        UnigramModel(vocabulary, scores_of([0.0, -1.0, score]))


def test_vocabularies_that_cannot_be_are_refused() -> None:
    with pytest.raises(VocabularyError, match="must be one of the special tokens"):
        UnigramModel(Vocabulary.build({1: b"a"}, {"<S>": 0}), np.zeros(2))
    with pytest.raises(VocabularyError, match="needs at least one"):
        UnigramModel(Vocabulary.build({}, {"[UNK]": 0}), np.zeros(1))
    with pytest.raises(VocabularyError, match="3 scores for 2 ids"):
        UnigramModel(Vocabulary.build({1: b"a"}, {"[UNK]": 0}), np.zeros(3))


@pytest.mark.parametrize("name", ["tokmill", "huggingface", "huggingface_exact"])
@pytest.mark.parametrize("split_pattern", ["gpt2", "llama3", r"\s|\S+"])
def test_files_come_back_with_the_same_scores(split_pattern: str, name: str, tmp_path: Path) -> None:
    how = {"split_pattern": split_pattern, "special_tokens": SPECIALS, "digits": "single"}
    tok = tokenizer.train(TRAINING_TEXTS, family="unigram", vocab_size=84, **how)
    tok.save(tmp_path, name)
    back = tokenizer.load(tmp_path)

    assert (back.vocab, dict(back.special_tokens)) == (tok.vocab, dict(tok.special_tokens))
    assert np.array_equal(back.definition.model.scores, tok.definition.model.scores)
    attestation.check(back, attestation.make(tok))


@pytest.mark.parametrize("normalizer", [None, "nfkc+lowercase"])
def test_attestations_hold_and_name_the_unknown(normalizer: str | None) -> None:
    tok = tokenizer.train(
        TRAINING_TEXTS, family="unigram", vocab_size=90, special_tokens=["<S>"], normalizer=normalizer
    )
    attested = json.loads(json.dumps(attestation.make(tok)))
    probes = {probe["name"]: probe for probe in attested["probes"]}

    attestation.check(Tokenizer.from_spec(tok.spec()), attested)
    assert 0 in probes["unknown"]["ids"]
    probes["german"]["ids"][1] += 1
    with pytest.raises(TokenizerError, match="probe 'german': id 1"):
        attestation.check(tok, attested)


@given(st.lists(any_text(), max_size=5))
def test_tokenizers_gives_the_same_ids(trained: Tokenizer, texts: list[str]) -> None:
    other = oracle(trained)
    # Other engines have older tables: what Python's own, which are older still, do not know is left out.
    assigned = ["".join(c for c in text if unicodedata.category(c) != "Cn") for text in texts]
    for text in [
        *assigned,
        *TRAINING_TEXTS,
        *attestation.PROBES.values(),
        "the [UNK]<|end|> fox<|endoftext|>",
    ]:
        ids = trained.encode(text, allowed_special="all")
        assert other.encode(text).ids == ids
        assert other.decode(ids, skip_special_tokens=False) == trained.decode(ids)


@given(st.lists(st.sampled_from(["ab", "a", "b", "☃", "中国", "\n", " ", "é"]), max_size=8).map("".join))
def test_bytes_of_unknown_characters_side_by_side_lie_where_tokenizers_has_them(text: str) -> None:
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


@pytest.fixture(scope="session")
def written(trained: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that is written for `tokenizers`."""
    folder = tmp_path_factory.mktemp("written")
    trained.save(folder, "huggingface")
    return folder / "tokenizer.json"


def oracle(tok: Tokenizer) -> tokenizers.Tokenizer:
    """The same tokenizer in `tokenizers`."""
    part = tok.definition.model
    pairs = [(token.decode(), score) for token, score in zip(tok.vocab, part.scores.tolist(), strict=True)]
    other = tokenizers.Tokenizer(tokenizers.models.Unigram(pairs, part.unknown_id, False))
    pattern = tokenizers.Regex(tokenizer.SPLIT_PATTERNS["gpt2"])
    other.pre_tokenizer = tokenizers.pre_tokenizers.Split(pattern, "isolated")
    other.decoder = tokenizers.decoders.Fuse()
    other.add_special_tokens(list(tok.special_tokens))
    return other


@given(texts=st.lists(st.text(alphabet="abcx éß", max_size=30), max_size=5), scores=st.data())
def test_tie_heavy_models_give_the_ids_of_tokenizers(texts: list[str], scores: st.DataObject) -> None:
    pieces = st.text(alphabet="abc éß", min_size=1, max_size=4).map(str.encode)
    drawn = scores.draw(
        st.dictionaries(pieces, st.sampled_from([-1.0, -2.0, -0.1, -0.3]), min_size=1, max_size=12)
    )
    tok = made(drawn, "gpt2")
    other = oracle(tok)

    assert [other.encode(text).ids for text in texts] == tok.encode_batch(texts).to_lists()


def of_hugging_face(texts: list[str], vocab_size: int) -> tokenizers.Tokenizer:
    """A tokenizer that `tokenizers` trains."""
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


def test_a_model_that_tokenizers_trained_gives_its_ids(tmp_path: Path) -> None:
    other = of_hugging_face(TRAINING_TEXTS, 120)
    other.save(str(tmp_path / "tokenizer.json"))
    tok = tokenizer.load(tmp_path)

    for text in [*TRAINING_TEXTS, *attestation.PROBES.values(), "the <unk><S> fox"]:
        assert tok.encode(text, allowed_special="all") == other.encode(text).ids


@pytest.mark.slow
@pytest.mark.shared_data
def test_real_text_gets_the_ids_of_tokenizers(shared_data: Path, tmp_path: Path) -> None:
    texts = {path.stem: path.read_text().splitlines() for path in (shared_data / "ntrex").glob("*.txt")}
    other = of_hugging_face([*texts["eng"], *texts["rus"], *texts["jpn"]], 4000)
    other.save(str(tmp_path / "tokenizer.json"))
    tok = tokenizer.load(tmp_path)

    for lines in texts.values():
        assert [found.ids for found in other.encode_batch(lines)] == tok.encode_batch(lines).to_lists()


def without_unknown(content: dict[str, object]) -> None:
    content["model"]["unk_id"] = None


def with_bytes(content: dict[str, object]) -> None:
    content["model"]["byte_fallback"] = True


def twice(content: dict[str, object]) -> None:
    content["model"]["vocab"][2] = content["model"]["vocab"][1]


def not_added(content: dict[str, object]) -> None:
    content["added_tokens"] = content["added_tokens"][1:]


def metaspace(content: dict[str, object]) -> None:
    content["pre_tokenizer"] = {"type": "Metaspace", "replacement": "_", "prepend_scheme": "always"}


def text_score(content: dict[str, object]) -> None:
    content["model"]["vocab"][3][1] = "-1.5"


def no_splits(content: dict[str, object]) -> None:
    content["pre_tokenizer"] = {"type": "WhitespaceSplit"}


def no_decoder(content: dict[str, object]) -> None:
    content["decoder"] = None


def far_unknown(content: dict[str, object]) -> None:
    content["model"]["unk_id"] = 10**6


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (without_unknown, "unk_id=None"),
        (far_unknown, "unk_id=1000000"),
        (with_bytes, "byte_fallback=True"),
        (twice, "under two ids"),
        (not_added, "must be an added token"),
        (metaspace, "replacement='_'"),
        (no_splits, "leaves white space out"),
        (no_decoder, "only Fuse"),
        (text_score, "the score of id 3"),
    ],
)
def test_files_of_others_that_cannot_be_read(
    change: Callable[[dict[str, object]], None], what: str, written: Path, tmp_path: Path
) -> None:
    content = json.loads(written.read_text())
    change(content)
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(content))

    with pytest.raises((FormatError, VocabularyError), match=what):
        tokenizer.load(file)


def test_kernels_give_the_same_as_plain_python() -> None:
    code = """
from tokmill import tokenizer
from tokmill.tokenizer.unigram.model import n_best, sample_batch
counts = {b"hug": 10, b"pug": 5, b"pun": 12, b"bun": 4, b"hugs": 5, b"hug" * 30: 2}
tok = tokenizer.train_from_counts(counts, family="unigram", vocab_size=12)
texts = ["hugs pun", "bug-x", ""]
print(list(tok.vocab), [round(score, 9) for score in tok.definition.model.scores.tolist()])
print(tok.encode_batch(texts, as_text=True).to_lists(), tok.encode_with_offsets(texts[0]))
print(sample_batch(tok.definition, texts, alpha=0.3, seed=2**64 - 1).to_lists())
print([ids for ids, _ in n_best(tok.definition, texts[0], 3)])
"""
    plain, compiled = (
        subprocess.check_output([sys.executable, "-c", code], env=os.environ | {"NUMBA_DISABLE_JIT": flag})
        for flag in ("1", "0")
    )
    assert plain == compiled
    assert plain.count(b"\n") == 4


def test_bytes_for_unknown_characters_are_in_a_tokenizer_json(tmp_path: Path) -> None:
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


def test_bytes_need_a_pattern_that_cuts_their_names(tmp_path: Path) -> None:
    how = {"family": "unigram", "vocab_size": 400, "byte_fallback": True, "allow_smaller": True}
    tok = tokenizer.train(["the quick brown fox"] * 3, split_pattern=r"\s+|[^\s]+", **how)
    with pytest.raises(TokenizerError, match="leaves <0x41> whole"):
        tok.save(tmp_path, "huggingface")


def test_tokenizers_reads_trained_scores_as_they_are(tmp_path: Path) -> None:
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
