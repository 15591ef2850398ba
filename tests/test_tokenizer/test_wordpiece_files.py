"""WordPiece's `vocab.txt`, there and back, with the settings beside it, and what cannot be right."""

import json
from pathlib import Path

import pytest

from tokmill import tokenizer
from tokmill.tokenizer import FormatError, Tokenizer

CASED = "bert_clean+cjk_spaces"
UNCASED = f"{CASED}+strip_nonspacing+lowercase"
SPECIALS = ["[PAD]", "[CLS]", "[SEP]", "[MASK]"]
TEXTS = ["The café sat, un-\thappily! 日本 [UNK]", "", "##at Cat's\u00a0mat", "x" * 101]


def trained(normalizer: str | None = UNCASED, **options: object) -> Tokenizer:
    texts = ["the cat sat on the mat with the other Cat, unhappily!"]
    how = {"split_pattern": "bert", "special_tokens": SPECIALS, **options}
    return tokenizer.train(texts, family="wordpiece", vocab_size=44, normalizer=normalizer, **how)  # type: ignore[arg-type]


def vocabulary(folder: Path, *lines: str) -> Path:
    file = folder / "vocab.txt"
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return file


@pytest.mark.parametrize("normalizer", [UNCASED, CASED, f"{CASED}+lowercase", "bert_clean+lowercase"])
def test_trained_tokenizers_come_back_from_a_vocab_txt(normalizer, tmp_path):
    tok = trained(normalizer)
    tok.save(tmp_path, "bert")
    back = tokenizer.load(tmp_path)

    assert back.vocab == tok.vocab
    assert back.definition.normalizer.name == normalizer
    assert (
        back.encode_batch(TEXTS, as_text=True).to_lists() == tok.encode_batch(TEXTS, as_text=True).to_lists()
    )
    assert back.decode(back.encode("the mat, sat")) == tok.decode(tok.encode("the mat, sat"))


@pytest.mark.parametrize(
    "options",
    [
        {"normalizer": None},
        {"normalizer": "nfc"},
        {"split_pattern": "gpt2"},
        {"special_tokens": ["<S>"]},
        {"num_reserved": 1},
        {"unknown": "part"},
        {"max_input_chars_per_word": 99},
    ],
)
def test_what_a_vocab_txt_cannot_tell_is_refused(options, tmp_path):
    tok = trained(**options)  # type: ignore[arg-type]

    with pytest.raises(FormatError, match="format='bert' cannot express"):
        tok.save(tmp_path, "bert")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("settings", "normalizer"),
    [
        ({}, CASED),  # there is a capital letter
        ({"do_lower_case": True}, UNCASED),
        ({"do_lower_case": True, "strip_accents": False}, f"{CASED}+lowercase"),
        ({"do_lower_case": False, "tokenize_chinese_chars": False}, "bert_clean"),
    ],
)
def test_the_settings_beside_it_are_read(settings, normalizer, tmp_path):
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    tok = tokenizer.load(vocabulary(tmp_path, "[UNK]", "Cat"))

    assert tok.definition.normalizer.name == normalizer


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", r"none of them \[UNK\]"),
        (b"cat\ndog\n", r"none of them \[UNK\]"),
        (b"[UNK]\ncat\ndog\ncat\n", "line 2: 'cat'"),
        (b"[UNK]\ncat\n\ndog\n", "line 3: ''"),
        (b"[UNK]\n\xff\n", "broken: it is not UTF-8 at byte 6"),
        (b"[UNK]\n" + b"".join(b"t%d\n" % i for i in range(100_000)) + b"t99999\n", "line 100001: 't99999'"),
    ],
)
def test_vocabularies_that_cannot_be_right(content, what, tmp_path):
    file = tmp_path / "vocab.txt"
    file.write_bytes(content)

    with pytest.raises(FormatError, match=what):
        tokenizer.load(file)


@pytest.mark.parametrize("name", ["bert", "gpt2", "tiktoken", "rwkv"])
def test_files_of_lines_are_the_same_with_other_line_ends_and_a_byte_order_mark(name, tmp_path):
    families = {"bert": "wordpiece", "rwkv": "longest_match"}
    how = {"vocab_size": 270, "allow_smaller": True}
    how |= {"split_pattern": "bert", "normalizer": CASED} if name == "bert" else {}
    texts = ["caf\u2028e caf\x85e \u2028\x85\u2028\x85"]
    tok = tokenizer.train(texts, family=families.get(name, "byte_bpe"), **how)  # type: ignore[arg-type]
    tok.save(tmp_path, name)
    for file in [*tmp_path.glob("*.txt"), *tmp_path.glob("*.tiktoken")]:
        file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))

    assert tokenizer.load(tmp_path).vocab == tok.vocab


def test_a_file_of_two_gigabytes_is_not_read(tmp_path):
    file = tmp_path / "vocab.txt"
    with file.open("wb") as opened:
        opened.truncate(2 << 30)

    with pytest.raises(FormatError, match="2147483648 bytes, but a tokenizer's file has at most"):
        tokenizer.load(file)


def test_a_vocabulary_of_bert_is_read_with_its_settings(tmp_path):
    lines = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "fox", "##es", ",", "é", "E", "[unused0]"]
    tok = tokenizer.load(vocabulary(tmp_path, *lines))
    assert tok.special_tokens == {name: i for i, name in enumerate(lines[:5])}
    assert tok.encode("the foxes, é", "the", add_special_tokens=True) == [2, 5, 6, 7, 8, 9, 3, 5, 3]
    assert tok.decode([5, 6, 7, 8, 5]) == "the foxes, the"
    assert tokenizer.load(tmp_path, normalizer="lowercase").encode("É") == [9]
    with pytest.raises(FormatError, match="nothing but normalizer"):
        tokenizer.load(tmp_path, split_pattern="gpt2")
