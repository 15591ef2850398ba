"""Word-level and character-level tokenizers: by hand, against the slow models, and against `tokenizers`."""

import json
import os
import subprocess
import sys
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
    LawError,
    Tokenizer,
    TokenizerError,
    TrainingError,
    VocabularyError,
    attestation,
)
from tokmill.tokenizer.kernels.words import MAX_SHORT
from tokmill.tokenizer.pipeline.base_model import Accounting
from tokmill.tokenizer.reference import character_level, word_level

FAMILIES = {"word_level": word_level, "character_level": character_level}
SPECIALS = ["<|endoftext|>", "<|end|>"]
UNKNOWN = b"[UNK]"


@pytest.fixture(scope="session", params=FAMILIES)
def closed(request: pytest.FixtureRequest) -> Tokenizer:
    """A tokenizer of either family that knows a part of the training texts."""
    return tokenizer.train(
        TRAINING_TEXTS, family=request.param, vocab_size=30, special_tokens=SPECIALS, num_reserved=1
    )


def slow_ids(tok: Tokenizer, text: str) -> list[int]:
    """The ids that the reference gives for a text without special tokens."""
    pretokens = [piece.encode() for piece in tok.splitter.split_text(text)]
    known = {token for _, token in tok.definition.vocabulary.ordinary()}
    return [tok.vocab[token] for token in FAMILIES[tok.family].encode(pretokens, known)]


def test_words_by_hand() -> None:
    counts = {b"the": 3, b" cat": 2, b" dog": 2, b" ant": 1}
    tok = tokenizer.train_from_counts(counts, vocab_size=5, family="word_level", special_tokens=["<S>"])

    assert tok.vocab == {b"[UNK]": 0, b"the": 1, b" cat": 2, b" dog": 3, b"<S>": 4}
    assert tok.encode("the dog ant<S>", allowed_special="all") == [1, 3, 0, 4]
    assert tok.decode([1, 3, 0, 4]) == "the dog[UNK]<S>"
    assert tok.encode_with_offsets("the ant dog") == ([1, 0, 3], [(0, 3), (3, 7), (7, 11)])


def test_characters_by_hand() -> None:
    tok = tokenizer.train_from_counts({b"banana": 2, b"bad": 1}, vocab_size=4, family="character_level")

    assert tok.vocab == {b"[UNK]": 0, b"a": 1, b"n": 2, b"b": 3}
    assert tok.encode("bad ä") == [3, 1, 0, 0, 0]
    assert tok.encode_with_offsets("äb") == ([0, 3], [(0, 1), (1, 2)])


def test_the_examples_of_the_references() -> None:
    assert word_level.train({b"the": 3, b" cat": 2, b" dog": 2, b" ant": 1}, 3) == [b"the", b" cat", b" dog"]
    assert word_level.encode([b"the", b" dog", b" ant"], [b"the", b" dog"]) == [b"the", b" dog", UNKNOWN]
    assert character_level.characters("aß天".encode()) == [b"a", "ß".encode(), "天".encode()]
    assert character_level.train({b"banana": 2, b"bad": 1}, 3) == [b"a", b"n", b"b"]
    assert character_level.encode([b"ban", b"dan"], [b"a", b"n"]) == [
        UNKNOWN,
        b"a",
        b"n",
        UNKNOWN,
        b"a",
        b"n",
    ]


@given(
    counts=st.dictionaries(st.binary(max_size=2 * MAX_SHORT + 3), st.integers(0, 9), max_size=12),
    number=st.integers(1, 12),
    least=st.integers(1, 3),
    longest=st.none() | st.integers(1, 20),
)
@pytest.mark.parametrize("family", FAMILIES)
def test_training_is_the_references(
    family: str, counts: dict[bytes, int], number: int, least: int, longest: int | None
) -> None:
    how = {"min_frequency": least, "max_token_bytes": longest}
    expected = FAMILIES[family].train(counts, number, forbidden=[b"[UNK]", b"<S>"], **how)

    tok = tokenizer.train_from_counts(
        counts, vocab_size=number + 2, family=family, special_tokens=["<S>"], **how
    )

    assert list(tok.vocab) == [b"[UNK]", *expected, b"<S>"]


@given(st.lists(any_text(), max_size=6))
def test_encoding_is_the_references(closed: Tokenizer, texts: list[str]) -> None:
    batch = closed.encode_batch(texts, as_text=True)

    assert batch.to_lists() == [slow_ids(closed, text) for text in texts]
    assert [closed.encode(text, as_text=True) for text in texts] == batch.to_lists()
    assert list(closed.encode_iterable(texts, as_text=True)) == closed.encode("".join(texts), as_text=True)


@given(st.lists(any_text(), max_size=4))
def test_decoding_gives_all_but_the_unknown_back(closed: Tokenizer, texts: list[str]) -> None:
    for text in texts:
        ids, spans = closed.encode_with_offsets(text, allowed_special="all")
        pieces = [text[start:end] for start, end in spans]
        unknown = closed.special_tokens["[UNK]"]
        shown = ["[UNK]" if token == unknown else piece for token, piece in zip(ids, pieces, strict=True)]
        assert "".join(pieces) == text
        assert closed.decode(ids) == "".join(shown)


@pytest.mark.parametrize("length", [MAX_SHORT - 1, MAX_SHORT, MAX_SHORT + 1, 2 * MAX_SHORT, 5000])
def test_words_of_every_length_are_found(length: int) -> None:
    words = {bytes([97 + i]) * length: 30 - i for i in range(26)}
    tok = tokenizer.train_from_counts(words, vocab_size=27, family="word_level", split_pattern=r"(.)\1*")
    others = [b"a" * (length - 1), b"a" * (length + 1), b"a" * (length - 1) + b"b"]

    assert [tok.encode(word) for word in words] == [[i + 1] for i in range(26)]
    assert [tok.encode_batch([other])[0].tolist() for other in others] == [[0], [0], [0, 0]]


def test_threads_and_batches_change_no_id(closed: Tokenizer) -> None:
    texts = TRAINING_TEXTS * 2000
    alone = closed.encode_batch(texts)

    assert np.array_equal(closed.encode_batch(texts, num_threads=2).ids, alone.ids)
    assert alone[7].tolist() == closed.encode(texts[7])


def test_a_smaller_vocabulary_begins_a_larger_one() -> None:
    counts = tokenizer.count_pretokens(TRAINING_TEXTS, family="word_level")
    sizes = [5, 12, 9]
    several = tokenizer.train_sweep_from_counts(counts, vocab_sizes=sizes, family="word_level")

    assert [tok.vocab_size for tok in several] == sizes
    for tok, size in zip(several, sizes, strict=True):
        assert tok == tokenizer.train(TRAINING_TEXTS, vocab_size=size, family="word_level")
        assert list(tok.vocab) == list(several[1].vocab)[:size]


@pytest.mark.parametrize("family", FAMILIES)
def test_text_with_fewer_strings_gives_a_smaller_vocabulary(family: str) -> None:
    tok = tokenizer.train(["a b a"], vocab_size=1000, family=family)

    assert tok.vocab_size < 6
    assert 0 not in tok.encode("a b a")


def test_options_that_make_no_sense_are_refused() -> None:
    with pytest.raises(TrainingError, match="tie_break"):
        tokenizer.train(["a"], vocab_size=9, family="word_level", tie_break="lowest_ids")
    with pytest.raises(TrainingError, match="use at least 3"):
        tokenizer.train(["a"], vocab_size=2, family="word_level", special_tokens=["<S>"])
    with pytest.raises(TrainingError, match=r"family='words' .* word_level"):
        tokenizer.train(["a"], vocab_size=9, family="words")


def test_what_the_family_does_not_have_is_named(closed: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(VocabularyError, match=f"a {closed.family} tokenizer has none"):
        _ = closed.merges
    for name in ("gpt2", "tiktoken", "sentencepiece"):
        with pytest.raises(FormatError, match=f"format='{name}' cannot express a {closed.family}"):
            closed.save(tmp_path, name)


@pytest.mark.parametrize("normalizer", [None, "nfkc+lowercase"])
@pytest.mark.parametrize("family", FAMILIES)
def test_attestations_hold_and_name_the_unknown(family: str, normalizer: str | None) -> None:
    tok = tokenizer.train(
        TRAINING_TEXTS, family=family, vocab_size=40, special_tokens=["<S>"], normalizer=normalizer
    )
    attested = json.loads(json.dumps(attestation.make(tok)))
    probes = {probe["name"]: probe for probe in attested["probes"]}

    attestation.check(Tokenizer.from_spec(tok.spec()), attested)
    assert 0 in probes["unknown"]["ids"]
    probes["german"]["ids"][1] += 1
    with pytest.raises(TokenizerError, match="probe 'german': id 1"):
        attestation.check(tok, attested)


@pytest.mark.parametrize("name", ["tokmill", "huggingface", "huggingface_exact"])
@pytest.mark.parametrize("split_pattern", ["gpt2", "llama3", "starcoder", r"\s|\S+", r"[\s\S]"])
@pytest.mark.parametrize("family", FAMILIES)
def test_files_come_back(family: str, split_pattern: str, name: str, tmp_path: Path) -> None:
    tok = tokenizer.train(
        TRAINING_TEXTS, family=family, vocab_size=30, split_pattern=split_pattern, special_tokens=SPECIALS
    )
    tok.save(tmp_path, name)
    back = tokenizer.load(tmp_path)

    assert (back.family, back.vocab, dict(back.special_tokens)) == (
        family,
        tok.vocab,
        dict(tok.special_tokens),
    )
    attestation.check(back, attestation.make(tok))


@pytest.mark.parametrize("split_pattern", ["gpt2", "llama3", "starcoder"])
@pytest.mark.parametrize("family", FAMILIES)
def test_tokenizers_reads_our_file_alike(family: str, split_pattern: str, tmp_path: Path) -> None:
    tok = tokenizer.train(
        TRAINING_TEXTS, family=family, vocab_size=40, split_pattern=split_pattern, special_tokens=SPECIALS
    )
    tok.save(tmp_path, "huggingface")
    other = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))

    for text in [*TRAINING_TEXTS, *attestation.PROBES.values(), "the [UNK]<|end|> fox<|endoftext|>"]:
        ids = tok.encode(text, allowed_special="all")
        assert other.encode(text).ids == ids
        assert other.decode(ids, skip_special_tokens=False) == tok.decode(ids)


@given(st.lists(st.text(alphabet="ab ßé", min_size=1, max_size=30), min_size=1, max_size=5))
def test_words_are_those_of_hugging_faces_trainer(texts: list[str]) -> None:
    other = tokenizers.Tokenizer(tokenizers.models.WordLevel(unk_token="[UNK]"))
    pattern = tokenizers.Regex(tokenizer.SPLIT_PATTERNS["gpt2"])
    other.pre_tokenizer = tokenizers.pre_tokenizers.Split(pattern, "isolated")
    trainer = tokenizers.trainers.WordLevelTrainer(
        vocab_size=6, special_tokens=["[UNK]"], show_progress=False
    )
    other.train_from_iterator(texts, trainer)
    tok = tokenizer.train(texts, vocab_size=6, family="word_level")

    assert {token.decode(): i for token, i in tok.vocab.items()} == other.get_vocab()


def test_a_token_that_is_no_utf8_stays_out_of_a_tokenizer_json(tmp_path: Path) -> None:
    tok = tokenizer.train_from_counts({b"\xff": 2}, vocab_size=2, family="word_level")

    assert tok.encode(b"\xff") == [1]
    assert tokenizer.load(tok.save(tmp_path)[0]) == tok
    with pytest.raises(FormatError, match="not UTF-8"):
        tok.save(tmp_path / "other", "huggingface")


CHARACTERS: dict[str, object] = {"type": "Split", "pattern": {"Regex": r"[\s\S]"}, "behavior": "Isolated"}


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"decoder": None}, "only Fuse"),
        ({"pre_tokenizer": None}, "needs a Split"),
        ({"added_tokens": []}, "added token"),
        ({"model": {"type": "Other"}}, "only byte-level BPE, BPE over words and characters, WordLevel"),
        (
            {"model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "a": 1, "b": 1}, "unk_token": "[UNK]"}},
            "id 1",
        ),
        (
            {"pre_tokenizer": {"pretokenizers": [CHARACTERS, CHARACTERS | {"behavior": "Removed"}]}},
            "only Isolated",
        ),
    ],
)
def test_word_level_files_of_others_that_cannot_be_read(
    change: dict[str, object], what: str, tmp_path: Path
) -> None:
    tok = tokenizer.train(["a b"], vocab_size=9, family="word_level")
    file = next(path for path in tok.save(tmp_path, "huggingface") if path.name == "tokenizer.json")
    file.write_text(json.dumps(json.loads(file.read_text()) | change))

    with pytest.raises(TokenizerError, match=what):
        tokenizer.load(file)


@pytest.mark.parametrize(
    ("ids", "ends", "unknown", "segment"),
    [
        ([1, 1, 0], [0, 2, 3], [0, 4], 1),
        ([1, 2, 0], [0, 2, 3], [0, 5], 0),
        ([1, 1, 9], [0, 2, 3], [0, 5], 1),
        ([1, 1, 0], [0, 2, 2], [0, 5], 0),
        ([1, 1, 0], [0, 2, 3], [2, 3], 0),
        ([2, 2, 0], [0, 2, 3], [-2, 5], 0),
    ],
)
def test_what_breaks_the_law_is_found(
    ids: list[int], ends: list[int], unknown: list[int], segment: int
) -> None:
    law = Accounting(np.array([0, 5, 6, 8]), 0)  # [UNK] of five bytes, a token of one, and a token of two
    bounds = np.array([3, 5, 10])
    kept = law.breach(np.array([1, 1, 0], np.uint32), np.array([0, 2, 3]), bounds, np.array([0, 5]))
    broken = law.breach(np.array(ids, np.uint32), np.array(ends), bounds, np.array(unknown))

    assert kept is None
    assert broken is not None
    assert broken.segment == segment


def test_ids_that_cannot_be_right_are_not_given_out() -> None:
    tok = tokenizer.train(["a b"], vocab_size=9, family="character_level")
    table = tok._encoder._encoder._tables.short
    table[2::3][table[2::3] > 0] = 99  # id + 1 of every string, as faulty memory would have it
    with pytest.raises(LawError, match=r"document 1 .* id 98, but ids are below"):
        tok.encode_batch(["", "a"])


def test_kernels_give_the_same_as_plain_python() -> None:
    code = """
from tokmill import tokenizer
for family in ("word_level", "character_level"):
    tok = tokenizer.train(["the cat, unbelievably-long-wooooooooooord"], vocab_size=9, family=family)
    texts = ["the dog, unbelievably-long-wooooooooooord", "[UNK]", ""]
    print(tok.encode_batch(texts, as_text=True).to_lists(), tok.encode_with_offsets(texts[0]))
"""
    plain, compiled = (
        subprocess.check_output([sys.executable, "-c", code], env=os.environ | {"NUMBA_DISABLE_JIT": flag})
        for flag in ("1", "0")
    )
    assert plain == compiled
    assert plain.count(b"\n") == 2
