"""GGUF's tokenizer section: ids of the vocabulary's other format, llama.cpp's, and nothing but our errors."""

import random
import struct
from pathlib import Path

import numpy as np
import pytest
import regex

from tests.test_tokenizer.conftest import TRAINING_TEXTS, like_bert, ntrex
from tests.test_tokenizer.gguf_files import (
    MODELS,
    byte_bpe,
    of_bert,
    of_byte_bpe,
    of_pieces,
    small_file,
    small_model,
    write_gguf,
)
from tests.test_tokenizer.test_fuzz_files import rounds, used, with_other_bytes
from tests.test_tokenizer.test_readers import PYTHON, ids_of_each, version
from tokmill import tokenizer
from tokmill.tokenizer.byte_bpe.huggingface import PRE_TOKENIZERS
from tokmill.tokenizer.core.errors import FormatError
from tokmill.tokenizer.formats import gguf
from tokmill.tokenizer.formats.gguf import read_metadata

NASTY = [
    *("", " ", "  a  b ", "\n\n \n", "a" * 90 + " " * 50 + "b", "\U0010ffff\U000e0001 x", "\x00 \x01 \u200b"),
    *(
        "I'LL we'Re 's '’s a1b22 c333  4444\r\n\r\n\t\tend",
        "😀👨‍👩‍👧🏳️‍🌈 Größe",
        "\u3000全角　ＡＢＣ①②ﬁ",
        "x_y(z){return !q;}\t\t// c",
    ),
]
LIBRARY = "xllamacpp"


@pytest.mark.parametrize(
    ("pre", "pattern"), [("gpt-2", "gpt2"), ("llama-bpe", "llama3"), ("qwen2", "qwen2"), ("gpt-4o", "o200k")]
)
def test_byte_level_vocabularies_are_read(pre, pattern, tmp_path):
    source = byte_bpe(pattern)
    tok = tokenizer.load(write_gguf(tmp_path / "model.gguf", of_byte_bpe(source, pre)))
    for text in [*TRAINING_TEXTS, *NASTY]:
        assert tok.encode(text) == source.encode(text)
    assert tok.special_tokens == source.special_tokens
    assert tok.definition.pre_tokenizer == source.definition.pre_tokenizer


@pytest.mark.parametrize("name", ["llama", "t5"])
def test_sentencepiece_models_are_read(name, tmp_path):
    model = small_model(name)
    (tmp_path / "tokenizer.model").write_bytes(model)
    source = tokenizer.load(tmp_path / "tokenizer.model")
    tok = tokenizer.load(write_gguf(tmp_path / "model.gguf", of_pieces(model, name)))
    for text in [*TRAINING_TEXTS, *NASTY, "a <tool>b"]:
        assert tok.encode(text) == source.encode(text)
        assert tok.decode(tok.encode(text)) == source.decode(source.encode(text))
    assert tok.definition.tokens == source.definition.tokens


def test_wordpiece_is_read(tmp_path):
    source = like_bert()
    tok = tokenizer.load(write_gguf(tmp_path / "model.gguf", small_file("bert")))
    assert tok.definition.tokens == source.definition.tokens
    assert tok.encode("The FOXES, 1234 über") == source.encode("The FOXES, 1234 über")
    around = tok.encode("the", "fox", add_special_tokens=True)
    assert [tok.definition.tokens[i].decode() for i in around] == ["[CLS]", "the", "[SEP]", "fox", "[SEP]"]


def test_a_piece_that_is_a_mark_continues_words(tmp_path):
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "▁", "##▁", "[unused1]"]
    content = of_bert(tokens)
    tok = tokenizer.load(write_gguf(tmp_path / "model.gguf", content))
    assert [token.decode() for token in tok.definition.tokens] == tokens
    content["tokenizer.ggml.tokens"][-1] = "[unused1]"  # as older files have it
    tok = tokenizer.load(write_gguf(tmp_path / "model.gguf", content))
    assert [token.decode() for token in tok.definition.tokens] == tokens


@pytest.mark.parametrize(
    ("lower", "strip", "steps"),
    [
        (None, None, "bert_clean+cjk_spaces+strip_nonspacing+lowercase"),
        (False, None, "bert_clean+cjk_spaces"),
        (True, False, "bert_clean+cjk_spaces+lowercase"),
    ],
)
def test_bert_normalizes_as_the_file_says(lower, strip, steps, tmp_path):
    given = {"lowercase": lower, "strip_accents": strip}
    keys = {f"tokenizer.ggml.normalizer.{key}": value for key, value in given.items() if value is not None}
    tok = tokenizer.load(write_gguf(tmp_path / "model.gguf", small_file("bert") | keys))
    assert tok.definition.normalizer.name == steps


@pytest.mark.parametrize("name", MODELS)
def test_versions_byte_orders_and_what_is_saved_say_the_same(name, tmp_path):
    path, content = tmp_path / "model.gguf", small_file(name)
    known = tokenizer.load(write_gguf(path, content)).spec()
    for order, number in (("<", 2), (">", 3)):
        assert tokenizer.load(write_gguf(path, content, order=order, version=number)).spec() == known
    with path.open("r+b") as file:
        file.truncate(40 << 30)  # a hole, where the tensors would be
    tok = tokenizer.load(tmp_path)  # a folder with one model
    assert tok.spec() == known
    assert tokenizer.load(tok.save(tmp_path / "saved")[0]).spec() == known
    with pytest.raises(FormatError, match="says itself how text is split"):
        tokenizer.load(path, split_pattern="gpt2")


def test_roles_templates_and_tokens_around_texts_are_read(tmp_path):
    more = {
        "tokenizer.ggml.add_eos_token": True,
        "tokenizer.ggml.eot_token_id": byte_bpe("llama3").special_tokens["<|user|>"],
        "tokenizer.chat_template": "{{ messages }}",
        "tokenizer.chat_template.tools": "{{ tools }}",
        "tokenizer.chat_templates": ["tools"],
    }
    tok = tokenizer.load(write_gguf(tmp_path / "model.gguf", small_file("gpt2") | more))
    end = tok.special_tokens["<|end|>"]
    assert tok.encode("the", add_special_tokens=True) == [end, *tok.encode("the"), end]
    assert tok.roles["bos"] == tok.roles["eos"] == "<|end|>"
    assert tok.roles["turn_end"] == "<|user|>"
    assert tok.definition.chat_templates == {"default": "{{ messages }}", "tools": "{{ tools }}"}


def test_fillers_of_a_vocabulary_are_special(tmp_path):
    content = small_file("llama")
    content["tokenizer.ggml.tokens"] += ["[PAD0]", "[PAD1]"]
    content["tokenizer.ggml.scores"] = np.append(content["tokenizer.ggml.scores"], np.float32([-1e4] * 2))
    content["tokenizer.ggml.token_type"] = np.append(content["tokenizer.ggml.token_type"], np.int32([5, 5]))
    tok = tokenizer.load(write_gguf(tmp_path / "model.gguf", content))
    assert tok.vocab_size == len(content["tokenizer.ggml.tokens"])
    assert tok.special_tokens["[PAD1]"] == tok.vocab_size - 1


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("gpt2", {"tokenizer.ggml.model": "plamo2"}, r"model='plamo2', but only gpt2, llama, rwkv, t5"),
        ("gpt2", {"tokenizer.ggml.model": None}, "has no tokenizer; of a model in several files"),
        ("gpt2", {"tokenizer.ggml.pre": "superbpe"}, "pre='superbpe' is not known; only gpt-2"),
        ("gpt2", {"tokenizer.ggml.pre": None}, "pre='default' is not known"),
        ("gpt2", {"tokenizer.ggml.merges": ["a", "b"]}, r"merges\[0\]='a' must be two tokens"),
        ("gpt2", {"tokenizer.ggml.merges": ["a ☃"]}, "not in GPT-2's byte alphabet"),
        ("gpt2", {"tokenizer.ggml.bos_token_id": 1 << 20}, "bos is None, which is not a special token"),
        ("gpt2", {"tokenizer.ggml.add_bos_token": "yes"}, "is a str|is a bytes"),
        ("gpt2", {"tokenizer.ggml.tokens": ["a", "b"]}, "array of 2 numbers, one for each token"),
        ("gpt2", {"tokenizer.ggml.token_type": np.zeros(330, "i4")}, r"token_type\[0\]=0 is not one of"),
        ("gpt2", {"tokenizer.ggml.token_type": np.full(330, 6, "i4")}, "of type BYTE"),
        ("gpt2", {"tokenizer.ggml.tokens": "a"}, "must be an array of 1 to"),
        ("llama", {"tokenizer.ggml.remove_extra_whitespaces": True}, "llama.cpp passes over for 'llama'"),
        ("llama", {"tokenizer.ggml.precompiled_charsmap": np.ones(9, "i1")}, "charsmap is set"),
        ("llama", {"tokenizer.ggml.scores": None}, "scores must be an array of"),
        ("t5", {"tokenizer.ggml.precompiled_charsmap": np.ones(9, "i1")}, "compiled rules claim a table"),
        ("t5", {"tokenizer.ggml.add_eos_token": 3}, "is a int, but must be a bool"),
        ("bert", {"tokenizer.ggml.seperator_token_id": 99}, "sep is None, which is not a special token"),
        ("bert", {"tokenizer.ggml.tokens": ["\udcff"]}, r"tokens\[0\] is not a text"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused_by_name(name, change, says, tmp_path):
    content = {key: value for key, value in (small_file(name) | change).items() if value is not None}
    path = write_gguf(tmp_path / "model.gguf", content)
    with pytest.raises(FormatError, match=says):
        tokenizer.load(path)


@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_tokens_of_users_are_added_and_control_tokens_special(name, tmp_path):
    content = small_file(name)
    for i, text, kind in ((-2, "the  x", 4), (-1, "<|control|>", 3)):
        content["tokenizer.ggml.tokens"][i] = text
        content["tokenizer.ggml.token_type"][i] = kind
    tok = tokenizer.load(write_gguf(tmp_path / "model.gguf", content))
    size = tok.vocab_size
    assert (tok.added_tokens, tok.special_tokens["<|control|>"]) == ({"the  x": size - 2}, size - 1)
    assert tok.encode("the  xthe  x") == [size - 2] * 2
    assert not {size - 2, size - 1} & {*tok.encode("the x <|control|>", as_text=True)}


def test_an_unused_piece_that_text_could_become_is_refused(tmp_path):
    content = small_file("llama")
    made = next(i for i, text in enumerate(content["tokenizer.ggml.tokens"]) if text == "th")
    content["tokenizer.ggml.token_type"][made] = 5
    with pytest.raises(FormatError, match=r"'th' is of type UNUSED, but is made of others"):
        tokenizer.load(write_gguf(tmp_path / "model.gguf", content))


HEAD = b"GGUF" + struct.pack("<IQQ", 3, 0, 1)
KEY = struct.pack("<Q", 14) + b"tokenizer.ggml"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "is of version 1, but only 2 and 3"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 40), "claims 1099511627776 keys"),
        (HEAD + struct.pack("<Q", 1 << 63), "claims 9223372036854775808 bytes of a key"),
        (HEAD + struct.pack("<Q", 2) + b"\xff\xff", "a key that is not a text"),
        (HEAD + KEY + struct.pack("<I", 13), "has type 13, which is not known"),
        (HEAD + KEY + struct.pack("<IQ", 8, 1 << 31), "claims 2147483648 bytes of tokenizer.ggml"),
        (HEAD + KEY + struct.pack("<IQ", 8, 1 << 30), "which claims 1073741824 bytes; the file is cut off"),
        (HEAD + KEY + struct.pack("<IIQ", 9, 8, 1 << 31), "claims 2147483648 elements"),
        (HEAD + KEY + struct.pack("<IIQ", 9, 0, 1 << 60), "claims 1152921504606846976 numbers"),
        (HEAD + KEY + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 9, "nested more than 4 deep"),
        (HEAD + (KEY + struct.pack("<IB", 7, 1)), "has no tokenizer"),
        (HEAD[:16] + struct.pack("<Q", 2) + (KEY + struct.pack("<IB", 7, 1)) * 2, "key tokenizer.ggml twice"),
    ],
)  # fmt: skip
def test_hostile_headers_cost_nothing(content, says, tmp_path):
    (tmp_path / "model.gguf").write_bytes(content)
    with pytest.raises(FormatError, match=says):
        tokenizer.load(tmp_path / "model.gguf")


def test_metadata_beyond_the_limit_are_refused(tmp_path, monkeypatch):
    path = write_gguf(tmp_path / "model.gguf", small_file("gpt2"))
    monkeypatch.setattr(gguf, "MAX_BYTES", 4000)
    with pytest.raises(FormatError, match="has more than 4000 bytes of metadata"):
        tokenizer.load(path)
    with pytest.raises(FormatError, match="not a regular file"):
        read_metadata(tmp_path)


@pytest.mark.parametrize("name", MODELS)
def test_a_damaged_file_gives_nothing_but_our_own_errors(name, tmp_path):
    path = write_gguf(tmp_path / "model.gguf", small_file(name))
    content = path.read_bytes()
    for size in {*range(60), *range(60, len(content), len(content) // 50), len(content) - 1}:
        path.write_bytes(content[:size])
        with pytest.raises(FormatError):
            tokenizer.load(path)
    for seed in rounds():
        path.write_bytes(with_other_bytes(random.Random(f"{name} {seed}"), content))
        used(f"{name}: round {seed}", path)


def ids_of_llama_cpp(paths: list[Path], texts: list[str]) -> list[list[list[int]]]:
    """The ids that llama.cpp gives with each file, with the tokens that it puts around texts."""
    if version(LIBRARY) is None:
        pytest.skip(f"no {LIBRARY} in {PYTHON}; CONTRIBUTING.md says how to install it")
    return ids_of_each(LIBRARY, paths, texts)


@pytest.mark.readers
@pytest.mark.parametrize("name", MODELS)
def test_llama_cpp_gives_our_ids(name, tmp_path):
    path = write_gguf(tmp_path / "model.gguf", small_file(name))
    tok = tokenizer.load(path)
    texts = [*TRAINING_TEXTS[:3], *NASTY]
    assert ids_of_llama_cpp([path], texts) == [[tok.encode(text, add_special_tokens=True) for text in texts]]


MARK = regex.compile(r"\p{M}")
APPROXIMATED = ("gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2", "tekken")
"""Of these, llama.cpp's own expressions leave marks out of words."""


@pytest.mark.readers
@pytest.mark.shared_data
@pytest.mark.slow
def test_llama_cpp_gives_our_ids_with_every_split_pattern(shared_data, tmp_path):
    texts = [*NASTY, *(line for text in ntrex(shared_data).values() for line in text.split("\n")[:25])]
    lines = r"[^\n]+|\n+"  # so that merges lie across all places that a pattern could cut
    source = tokenizer.train(texts, vocab_size=4000, split_pattern=lines, special_tokens=["<|end|>"])
    without_bos = {"tokenizer.ggml.add_bos_token": False}
    paths = {
        pre: write_gguf(tmp_path / f"{pre}.gguf", of_byte_bpe(source, pre) | without_bos)
        for pre in PRE_TOKENIZERS
    }
    theirs = ids_of_llama_cpp([*paths.values()], texts)
    for (pre, path), their_ids in zip(paths.items(), theirs, strict=True):
        compared = [i for i, text in enumerate(texts) if pre not in APPROXIMATED or not MARK.search(text)]
        expected = tokenizer.load(path).encode_batch([texts[i] for i in compared], as_text=True).to_lists()
        assert [their_ids[i] for i in compared] == expected, pre
