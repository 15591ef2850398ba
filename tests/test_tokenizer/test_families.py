"""What every family promises: files, threads, sweeps, streams, sizes, and the ids of tokenizers."""

import gc
import json
import random
import weakref
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from tests.test_tokenizer.conftest import BERT, TRAINING_TEXTS, any_text
from tokmill import tokenizer
from tokmill.tokenizer import (
    FormatError,
    Tokenizer,
    TokenizerError,
    TrainingError,
    VocabularyError,
    attestation,
)
from tokmill.tokenizer.pipeline.families import FAMILIES

SIZES = {"byte_bpe": 300, "longest_match": 300, "unigram": 90, "word_level": 40, "character_level": 60}
ALL: dict[str, dict[str, Any]] = {family: {"vocab_size": SIZES.get(family, 120)} for family in FAMILIES}
ALL |= {"word_bpe of bytes": {"family": "word_bpe", "letters": "bytes", "vocab_size": 600}}
ALL |= {"wordpiece by part": {"family": "wordpiece", "unknown": "part", "vocab_size": 120}}
STEPS = 'nfc+replace("ß","ss")+replace_pattern("[0-9]+","0")+strip+prepend("▁")'
PARTS: dict[str, dict[str, Any]] = {
    "gpt2": {"split_pattern": "gpt2", "digits": "single"},
    "from right": {"split_pattern": "gpt2", "digits": "groups_of_three_from_right"},
    "llama3": {"split_pattern": "llama3", "num_reserved": 1, "normalizer": "nfkc+lowercase"},
    "chain": {"split_pattern": "starcoder", "normalizer": "lowercase+bert_clean"},
    "words": {"split_pattern": "whitespace_split", "normalizer": "nfc"},
    "whitespace": {"split_pattern": "whitespace"},
    "punctuation": {"split_pattern": "punctuation", "normalizer": "bert_clean+cjk_spaces"},
    "bert": {"split_pattern": "bert", "normalizer": BERT},
    "steps": {"normalizer": STEPS},
    "template": {"template": "[CLS] $A [SEP]"},
}
WORDS = {"word_bpe", "wordpiece"}
"""Families whose pre-tokens are words without the white space between them."""
NO_JSON = {"char_bpe", "longest_match", "wordpiece by part"}
TEXTS = [
    *TRAINING_TEXTS[:3],
    "",
    "  the 1234567[SEP] fox  ",
    "dog's un-\thappily 日本 12,34 ½",
    "Straße[SEP]",
]
TEXTS += ["[CLS][SEP] ", "the_fox's, 12!?  dog\n", "1" + "0" * 50, "today 今天 the [UNK] \u0301é"]


@lru_cache(maxsize=16)  # each holds megabytes of scratch
def trained(name: str, **options: Any) -> Tokenizer:
    how = {
        "family": name,
        "special_tokens": ["[CLS]", "[SEP]"],
        "allow_smaller": True,
        **ALL[name],
        **options,
    }
    if isinstance(how["special_tokens"], str):
        how["special_tokens"] = how["special_tokens"].split()
    return tokenizer.train([*TRAINING_TEXTS, "1234567 7654321 234567 567"], **how)


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("name", ALL)
def test_files_and_every_way_to_encode_give_the_same(name, parts, tmp_path):
    tok = trained(name, **PARTS[parts])
    again = tokenizer.load(*tok.save(tmp_path / "own"))
    expected = [tok.encode(text, allowed_special="all") for text in TEXTS]

    assert again == tok == Tokenizer.from_spec(json.loads(json.dumps(tok.spec())))
    attestation.check(again, json.loads(json.dumps(attestation.make(tok))))
    for threads in (1, 3):
        assert again.encode_batch(TEXTS, allowed_special="all", num_threads=threads).to_lists() == expected
    for text, ids in zip(TEXTS, expected, strict=True):
        assert list(tok.encode_iterable([*text], allowed_special="all")) == ids
        assert tok.encode_with_offsets(text, allowed_special="all")[0] == ids
        assert tok.count_tokens(text, allowed_special="all") == len(ids)
    if tok.definition.post_processor:
        first, last = (tok.special_tokens[mark] for mark in ("[CLS]", "[SEP]"))
        types = [0] * (len(expected[0]) + 2) + [1] * (len(expected[1]) + 1)
        both = [first, *expected[0], last, *expected[1], last]
        assert tok.encode_with_types(TEXTS[0], TEXTS[1]) == (both, types)


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("name", [name for name in ALL if name not in NO_JSON])
def test_tokenizers_gives_the_ids_of_what_is_written(name, parts, tmp_path):
    tok = trained(name, **PARTS[parts])
    tok.save(tmp_path, "huggingface")
    theirs, again = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json")), tokenizer.load(tmp_path)

    assert (again.vocab, again.special_tokens) == (tok.vocab, tok.special_tokens)
    assert again.definition.post_processor == tok.definition.post_processor
    assert again.definition.model.spec() == tok.definition.model.spec()
    for text in TEXTS:
        ids = tok.encode(text, allowed_special="all")
        assert theirs.encode(text, add_special_tokens=False).ids == ids, text
        assert again.encode(text, allowed_special="all") == ids
        assert theirs.decode(ids, skip_special_tokens=False) == tok.decode(ids)
    pair = theirs.encode(*TEXTS[:2])
    assert tok.encode_with_types(*TEXTS[:2]) == (pair.ids, pair.type_ids)


@pytest.mark.parametrize("family", ["word_level", "character_level", "unigram"])
@given(text=any_text())
def test_spans_tile_the_text_and_what_is_known_comes_back(family, text):
    tok = trained(family, split_pattern="gpt2", special_tokens="<|endoftext|> <|end|>")
    ids, spans = tok.encode_with_offsets(text, allowed_special="all")
    pieces = [text[start:end] for start, end in spans]
    unknown = tok.special_tokens["[UNK]"]
    shown = ["[UNK]" if token == unknown else piece for token, piece in zip(ids, pieces, strict=True)]

    assert "".join(pieces) == text
    assert tok.decode(ids) == "".join(shown)
    assert tok.encode_batch([text, text], allowed_special="all").to_lists() == [ids, ids]


@pytest.mark.parametrize("name", ALL)
def test_threads_change_no_id(name):
    tok, texts = trained(name), [*TRAINING_TEXTS * 700, "x" * 300_000, "今天\U000f0000 " * 9]
    alone = tok.encode_batch(texts)

    shared = tok.encode_batch(texts, num_threads=3)
    assert np.array_equal(shared.ids, alone.ids)
    assert np.array_equal(shared.offsets, alone.offsets)
    for i in (7, -2, -1):
        assert alone[len(texts) + i if i < 0 else i].tolist() == tok.encode(texts[i])


@pytest.mark.parametrize("name", ALL)
def test_the_memory_of_a_tokenizer_that_nobody_holds_is_free(name):
    tok = Tokenizer.from_spec(trained(name).spec())
    gc.disable()  # who loads many would hold gigabytes until Python looks for cycles
    try:
        ids = tok.encode_batch(TEXTS * 500, allowed_special="all", num_threads=2)[0]
        tok.encode_with_offsets(TEXTS[0])
        tok.decode(ids)
        held = [weakref.ref(each) for each in (tok, tok.definition.model, tok._encoder._encoder)]
        del tok
        assert [ref() for ref in held] == [None] * 3
    finally:
        gc.enable()


@pytest.mark.parametrize("name", ALL)
def test_order_threads_and_units_of_counts_change_no_training(name):
    options = {"family": name, **ALL[name]}
    size = {"vocab_size": options.pop("vocab_size")}
    counts = tokenizer.count_pretokens(TRAINING_TEXTS, num_threads=3, **options).to_dict()
    shuffled = dict(random.Random(1).sample(sorted(counts.items()), len(counts)))
    how = options | size
    one = tokenizer.train(TRAINING_TEXTS, **how)

    assert tokenizer.train(TRAINING_TEXTS[::-1], num_threads=3, **how) == one
    assert tokenizer.train_from_counts(shuffled, num_threads=2, **how) == one
    if one.family != "byte_bpe":  # whose rules have absolute numbers
        finer = {word: 1000 * count for word, count in counts.items()}
        assert tokenizer.train_from_counts(finer, count_unit=1000, **how) == one


@pytest.mark.parametrize("name", ALL)
def test_a_sweep_is_each_size_alone(name):
    how = {"family": name, "special_tokens": ["<b>"], **ALL[name]}
    size = how.pop("vocab_size") - 6
    counts = tokenizer.count_pretokens(TRAINING_TEXTS, **how)
    sizes = [size - 3, size, size - 1]
    several = tokenizer.train_sweep_from_counts(counts, vocab_sizes=sizes, **how)

    assert several == [tokenizer.train_from_counts(counts, vocab_size=each, **how) for each in sizes]
    assert [tok.vocab_size for tok in several] == sizes


def size_in(error: pytest.ExceptionInfo[TrainingError], before: str) -> int:
    return int(str(error.value).split(before)[1].split(",")[0].split(" ")[0])


@pytest.mark.parametrize("name", [name for name in ALL if "level" not in name])
def test_too_little_text_names_a_size_that_works(name, caplog):
    how = {**{"family": name, **ALL[name]}, "vocab_size": 900}
    with pytest.raises(TrainingError, match="lower vocab_size to") as refused:
        tokenizer.train(["abc abc abd"], **how)
    smaller = tokenizer.train(["abc abc abd"], allow_smaller=True, **how)
    size = size_in(refused, "lower vocab_size to ")

    assert smaller == tokenizer.train(["abc abc abd"], **how | {"vocab_size": size})
    assert smaller.vocab_size == size
    assert "allow_smaller=true" in caplog.text


@pytest.mark.parametrize("family", ["word_level", "character_level"])
def test_vocabularies_of_whole_strings_may_be_smaller(family):
    tok = tokenizer.train(["a b a"], vocab_size=1000, family=family)
    assert tok.vocab_size < 6
    assert 0 not in tok.encode("a b a")


@pytest.mark.parametrize("name", ALL)
def test_too_small_a_vocabulary_names_the_least_size(name):
    how = {"family": name, **ALL[name], "special_tokens": ["<b>"], "vocab_size": 1}
    with pytest.raises(TrainingError, match=r"vocab_size=1 .*use at least") as refused:
        tokenizer.train(["abc abc abd"], **how)
    least = size_in(refused, "use at least ")

    assert tokenizer.train(["abc abc abd"], **how | {"vocab_size": least}).vocab_size == least
    with pytest.raises(TrainingError):
        tokenizer.train(["abc abc abd"], **how | {"vocab_size": least - 1})


@pytest.mark.parametrize("name", ALL)
def test_a_changed_probe_is_named(name):
    tok = trained(name)
    attested = json.loads(json.dumps(attestation.make(tok)))
    german = next(probe for probe in attested["probes"] if probe["name"] == "german")
    german["ids"][1] += 1
    with pytest.raises(TokenizerError, match="probe 'german': id 1"):
        attestation.check(tok, attested)


@pytest.mark.parametrize(
    ("family", "options", "says"),
    [
        ("words", {}, "family='words'.* word_level"),
        ("word_level", {"tie_break": "lowest_ids"}, "tie_break"),
        ("unigram", {"tie_break": "lowest_ids"}, "tie_break"),
        ("char_bpe", {"tie_break": "lowest_ids"}, "tie_break='lowest_ids' is for byte-level BPE"),
        ("wordpiece", {"tie_break": "lowest_ids"}, "tie_break='lowest_ids'"),
        ("byte_bpe", {"tie_break": "first"}, "tie_break='first'"),
        ("longest_match", {"byte_fallback": True}, "has every byte anyway"),
        ("wordpiece", {"score": "chance"}, "score='chance'"),
        ("word_bpe", {"end_of_word": "off"}, "end_of_word='off' is not known"),
        ("unigram", {"seed": "merges"}, "seed='merges' is not known"),
        ("unigram", {"seed_size": -1}, "seed_size=-1"),
        ("unigram", {"shrinking_factor": 1.5}, "shrinking_factor=1.5"),
        ("unigram", {"character_coverage": 0.0}, "character_coverage=0.0"),
        *((family, {"mode": "sentencepiece"}, "char_bpe, unigram") for family in ("byte_bpe", "wordpiece")),
    ],
)
def test_options_that_make_no_sense_are_refused(family, options, says):
    with pytest.raises(TrainingError, match=says):
        tokenizer.train(TRAINING_TEXTS, family=family, vocab_size=300, **options)


@pytest.mark.parametrize("counts", [{}, {b"": 3}, {b"a": 0}])
def test_no_text_is_refused(counts):
    for family in ("unigram", "longest_match", "char_bpe") if not counts else ("unigram",):
        with pytest.raises(TrainingError, match="text is empty"):
            tokenizer.train_from_counts(counts, family=family, vocab_size=300)


CANNOT = [
    *(("word_level", name, "cannot express a word_level") for name in ("gpt2", "tiktoken", "sentencepiece")),
    ("byte_bpe", "bert", "other families"),
    ("byte_bpe", "onnx", "is not known"),
    ("byte_bpe", "sentencepiece", "cannot express a byte_bpe tokenizer"),
    ("char_bpe", "huggingface", "joins any two pieces"),
    ("char_bpe", "sentencepiece", "needs a model that was read from such a file"),
    ("unigram", "sentencepiece", "needs a model that was read from such a file"),
    ("wordpiece by part", "huggingface", "unknown='part'"),
    ("wordpiece", "gpt2", "gpt2"),
]


@pytest.mark.parametrize(("name", "file_format", "says"), CANNOT)
def test_what_a_format_cannot_express_is_named(name, file_format, says, tmp_path):
    with pytest.raises(FormatError, match=says):
        trained(name).save(tmp_path, file_format)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("family", ["unigram", "word_level"])
def test_tokens_that_are_no_utf8_stay_out_of_a_tokenizer_json(family, tmp_path):
    tok = tokenizer.train_from_counts(
        {b"\xff\xfe": 9, b"a\xc3\xa9": 5, b"\x80": 4}, vocab_size=6, family=family
    )

    assert tok.decode_bytes(tok.encode(b"\xff\xfe")) == b"\xff\xfe"
    assert tokenizer.load(tok.save(tmp_path)[0]) == tok
    with pytest.raises(FormatError, match="not UTF-8"):
        tok.save(tmp_path / "other", "huggingface")


def test_families_without_merges_say_so():
    with pytest.raises(VocabularyError, match="a word_level tokenizer has none"):
        _ = trained("word_level").merges


@pytest.mark.parametrize("name", ["wordpiece", "wordpiece by part", "unigram", "word_level"])
@given(texts=st.lists(st.binary(max_size=50), max_size=5))
def test_bytes_that_are_no_text_are_accounted_for(name, texts):
    tok = trained(name)
    for text, ids in zip(texts, tok.encode_batch(texts, as_text=True), strict=True):
        assert tok.encode_with_offsets(text, as_text=True)[0] == ids.tolist()
