"""Files that cannot be right, hostile ones, and those of others: refused by name, with an error of ours."""

import base64
import json
import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.test_tokenizer.conftest import edited
from tests.test_tokenizer.test_families import trained
from tokmill import tokenizer
from tokmill.tokenizer import FormatError, Tokenizer, TokenizerError
from tokmill.tokenizer.core.text import CHARACTERS
from tokmill.tokenizer.formats import files
from tokmill.tokenizer.splitting import SPLIT_PATTERNS


def split(pattern: dict[str, str], behavior: str = "Isolated", *, invert: bool = False) -> dict[str, Any]:
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def regex(expression: str, behavior: str = "Isolated", *, invert: bool = False) -> dict[str, Any]:
    return split({"Regex": expression}, behavior, invert=invert)


def steps(*each: dict[str, Any]) -> dict[str, Any]:
    return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [*each]}}


def kind(name: str, **more: Any) -> dict[str, Any]:
    return {"type": name, **more}


BYTES = kind("ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=False)
REMOVED = kind("Punctuation", behavior="Removed")
DECODERS = [
    kind("Strip", content=" ", start=1, stop=0),
    kind("Sequence", decoders=[BYTES, kind("Replace", pattern={"String": "a"}, content="")]),
    kind("Sequence", decoders=[kind("ByteFallback"), BYTES]),
    kind("CTC", pad_token="<pad>", word_delimiter_token="|", cleanup=True),
]
LOSING = [
    (kind("Whitespace"), "leaves white space out, which only the families wordpiece and word_bpe do"),
    (kind("WhitespaceSplit"), "leaves white space out"),
    (kind("BertPreTokenizer"), "leaves white space out"),
    (kind("UnicodeScripts"), "leaves out the spaces that a text begins with"),
    (kind("CharDelimiterSplit", delimiter="-"), "leaves its delimiter out"),
    (kind("FixedLength", length=3), "only Split, Punctuation, Digits"),
    (REMOVED, "leaves text out"),
    (split({"String": "-"}, "Removed"), "leaves text out"),
    (regex(SPLIT_PATTERNS["punctuation"], "Removed", invert=True), "leaves text out"),
    (split({"String": "-"}, "MergedWithNext", invert=True), "MergedWithNext can be done without it"),
]
CANNOT: dict[str, list[tuple[dict[str, Any], str]]] = {
    "byte_bpe": [
        ({"model.type": "Other"}, "only byte-level BPE, BPE over words and characters, WordLevel"),
        ({"model.byte_fallback": True}, "model.byte_fallback=True"),
        ({"model.unk_token": "<unk>"}, "model.unk_token"),
        ({"model.merges": ["a"]}, "broken: a value is of another form"),
        ({"model.vocab.zz": 70}, "have the same id 70"),
        ({"model.vocab.zz": None}, "id None"),
        ({"model": 7}, "broken: "),
        ({"normalizer": kind("ByteLevel")}, "normalizer.type='ByteLevel'.*only NFC"),
        ({"normalizer": kind("Replace", pattern={"Regex": r"\d"}, content="")}, "in another way"),
        ({"pre_tokenizer": kind("Whitespace")}, "must be ByteLevel"),
        ({"pre_tokenizer": kind("ByteLevel", add_prefix_space=True)}, "add_prefix_space=True"),
        ({"pre_tokenizer": kind("ByteLevel", use_regex=False)}, "needs a Split"),
        ({"added_tokens": [{"id": 0, "content": "!", "single_word": True}]}, "single_word=True"),
        *((steps(regex(each), BYTES), "another way") for each in (r"\p{N}{1,3}+", r"(?m)a.$")),
        *((steps(step, BYTES), says) for step, says in LOSING),
    ],
    "wordpiece": [
        *(
            ({"decoder": each}, "only WordPiece")
            for each in (kind("Fuse"), None, kind("WordPiece", prefix="@@"))
        ),
        ({"pre_tokenizer": None}, "leaves white space out"),
        ({"pre_tokenizer": kind("ByteLevel")}, "WhitespaceSplit can be read"),
        ({"added_tokens": []}, "added token"),
        ({"normalizer": kind("ByteLevel")}, "BertNormalizer"),
        ({"model.continuing_subword_prefix": "@@"}, "only ## can be done"),
        ({"model.max_input_chars_per_word": 0}, "max_input_chars_per_word=0"),
        ({"model.max_input_chars_per_word": "many"}, "max_input_chars_per_word='many'"),
        ({"model.unk_token": ","}, "must be one of the special tokens"),
        (steps(kind("Punctuation", behavior="Isolated")), "a step must leave white space out"),
        (steps(split({"String": " "}, "Removed")), "leaves text out"),
        (steps(regex(r"\s+", "Removed", invert=True)), "leaves text out"),
        (steps(REMOVED, kind("WhitespaceSplit")), "leaves text out"),
    ],
    "word_level": [
        ({"decoder": None}, "only Fuse"),
        ({"pre_tokenizer": None}, "needs a Split"),
        ({"added_tokens": []}, "added token"),
        ({"model": kind("WordLevel", vocab={"[UNK]": 0, "a": 1, "b": 1}, unk_token="[UNK]")}, "id 1"),
        (steps(regex(r"[\s\S]"), regex(r"[\s\S]", "Removed")), "only Isolated"),
    ],
    "unigram": [
        ({"model.unk_id": None}, "unk_id=None"),
        ({"model.unk_id": 10**6}, "unk_id=1000000"),
        ({"model.byte_fallback": True}, "byte_fallback=True"),
        ({"model.vocab.1": ["a", -1.0], "model.vocab.2": ["a", -2.0]}, "under two ids"),
        ({"model.vocab.3.1": "-1.5"}, "the score of id 3"),
        ({"added_tokens": []}, "must be an added token"),
        ({"pre_tokenizer": kind("Metaspace", replacement="_", prepend_scheme="always")}, "replacement='_'"),
        ({"decoder": None}, "only Fuse"),
        *((steps(step), says) for step, says in LOSING),
    ],
    "word_bpe": [
        ({"decoder": kind("BPEDecoder", suffix="@@")}, "only BPEDecoder and ByteLevel"),
        ({"model.continuing_subword_prefix": "##"}, "continuing_subword_prefix='##'"),
        (
            {"model.continuing_subword_prefix": "##", "model.end_of_word_suffix": None, "decoder": None},
            "continuing_subword_prefix='##'",
        ),
        (steps(kind("Punctuation", behavior="Isolated")), "a step must leave white space out"),
    ],
}
for family in CANNOT:
    CANNOT[family] += [({"decoder": each}, "decoder") for each in DECODERS]


@cache
def content_of(family: str) -> dict[str, Any]:
    pattern = "whitespace_split" if family in {"wordpiece", "word_bpe"} else "gpt2"
    with tempfile.TemporaryDirectory() as folder:
        trained(family, split_pattern=pattern, normalizer="nfkc").save(folder, "huggingface")
        content: dict[str, Any] = json.loads((Path(folder) / "tokenizer.json").read_bytes())
        return content


@pytest.mark.parametrize(
    ("family", "changes", "says"), [(family, *row) for family, rows in CANNOT.items() for row in rows]
)
def test_a_tokenizer_json_that_cannot_be_done(family, changes, says, tmp_path):
    files.write_json(tmp_path / "tokenizer.json", edited(content_of(family), changes))
    with pytest.raises(TokenizerError, match=says):
        tokenizer.load(tmp_path)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"format": "other"}, "must be 'tokmill'"),
        ({"version": 99}, "newer tokmill"),
        ({"merges": [[0, 100000]]}, "broken: there is no "),
        ({"tokens": ["語"]}, "not in GPT-2's byte alphabet"),
        ({"special_tokens": None}, "broken: a value is of another type than it must be"),
    ],
)
def test_a_broken_file_of_our_own(small, tmp_path, changes, says):
    (file,) = small.save(tmp_path)
    files.write_json(file, edited(json.loads(file.read_bytes()), changes))
    with pytest.raises(FormatError, match=says):
        tokenizer.load(tmp_path)


SPECS: dict[str, list[tuple[dict[str, Any], str]]] = {
    "char_bpe": [
        ({"scores": [0.0]}, "1 scores for"),
        ({"scores": [float("nan")] * 120}, "a finite number"),
        ({"unknown_token": "<none>"}, "must be one of the special tokens"),
        ({"frozen": [0]}, "id 0 is frozen, but is not a piece"),
        ({"frozen": [5_000]}, "id 5000 is frozen"),
        ({"byte_ids": [5]}, "1 ids stand in for bytes"),
    ],
    "word_bpe": [
        ({"merges": [[1, 1]]}, "is not a token"),
        ({"unknown_token": None}, "must be one of the special tokens"),
        ({"letters": "bytes"}, "letters are missing"),
        ({"letters": "words"}, "letters='words' is not known"),
        ({"end_of_word": "apart"}, "there is no piece </w>"),
        ({"segmentation": "shortest"}, "segmentation='shortest' is not known"),
        ({"fuse_unknown": 1}, "fuse_unknown=1 must be true or false"),
    ],
    "wordpiece": [
        ({"max_input_chars_per_word": 0}, "max_input_chars_per_word=0"),
        ({"unknown": "both"}, "unknown='both'"),
    ],
    "unigram": [
        *(
            ({"scores": [score] * 90}, "the score of id")
            for score in (float("nan"), float("inf"), 0.5, None, True)
        ),
        ({"scores": [0.0] * 3}, "3 scores for 90 ids"),
        ({"unknown_token": "<none>"}, "must be one of the special tokens"),
    ],
    "byte_bpe": [
        ({"roles": {"end": "[CLS]"}}, "'end' is not known"),
        ({"roles": {"eos": "[CLS"}}, "not a special token"),
        ({"roles": ["eos"]}, "by role"),
        ({"chat_templates": {"default": 5}}, "must be a text"),
        ({"chat_templates": {"default": "x" * ((1 << 20) + 1)}}, "at most"),
        ({"chat_templates": {"": "x"}}, "short and printable"),
        ({"chat_templates": {str(i): "x" for i in range(65)}}, "at most 64"),
        *(
            ({"unicode": {"version": version, "tables": "0" * 16}}, "must hold the texts")
            for version in ("\ud800", "x" * 100, "1\n2", 17.0, None)
        ),
    ],
}


@pytest.mark.parametrize(
    ("family", "changes", "says"), [(family, *row) for family, rows in SPECS.items() for row in rows]
)
def test_a_damaged_spec_is_refused(family, changes, says):
    with pytest.raises(TokenizerError, match=says):
        Tokenizer.from_spec(trained(family).spec() | changes)


def ranks(*others: tuple[bytes, object]) -> bytes:
    """A `.tiktoken` file of the bytes and other tokens."""
    tokens = [(bytes([byte]), byte) for byte in range(256)]
    return b"".join(base64.b64encode(token) + f" {rank}\n".encode() for token, rank in [*tokens, *others])


@pytest.mark.parametrize("rank", [10**18, 1 << 21, -1, "9" * 5000, 1.5])
def test_ranks_beyond_every_vocabulary(tmp_path, rank):
    (tmp_path / "own.tiktoken").write_bytes(ranks((b"ab", rank)))
    with pytest.raises(FormatError, match=r"line 257: .*rank"):
        tokenizer.load(tmp_path, split_pattern="gpt2")


@pytest.mark.parametrize(
    "changes",
    [
        {"special_tokens": ["<s>"]},
        {"special_tokens": {"<s>": "7"}},
        {"special_tokens": {"<s>": 10**18}},
        {"special_tokens": {"<s>": True}},
        {"special_tokens": {"": 300}},
        {"special_tokens": {"\ud800x": 300}},
        {"num_reserved": 10**18},
        {"num_reserved": "2"},
        {"num_reserved": True},
        {"num_reserved": -1},
        {"ignore_merges": "no"},
        {"normalizer": ["nfc"]},
        {"normalizer": "+".join(["nfc"] * 100)},
        {"split_pattern": {"a": 1}, "split_chain": ["a"]},
        {"split_chain": [7]},
        {"split_chain": "a"},
        {"split_chain": [["("]]},
        {"digits": 3},
    ],
)
def test_sidecars_whose_values_have_another_type(tmp_path, changes):
    (tmp_path / "own.tiktoken").write_bytes(ranks())
    tok = tokenizer.load(tmp_path, split_pattern="gpt2", special_tokens={"<s>": 300})
    _, sidecar = tok.save(tmp_path / "saved", "tiktoken")
    sidecar.write_bytes(files.dump_json(json.loads(sidecar.read_bytes()) | changes))
    with pytest.raises(TokenizerError):
        tokenizer.load(tmp_path / "saved")


@pytest.mark.parametrize("vocab", [{"a": True}, {"a": 1.0}, {"a": "1"}, {"a": None}, {"a": 10**30}, {"": 1}])
def test_ids_that_are_none(small, tmp_path, vocab):
    small.save(tmp_path, "gpt2")
    path = tmp_path / "vocab.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | vocab))
    with pytest.raises(TokenizerError):
        tokenizer.load(tmp_path)


def test_a_byte_level_vocabulary_without_some_bytes(tmp_path):
    content = edited(content_of("byte_bpe"), {})
    for byte in (0xC0, 0xC1, *range(0xF5, 0x100)):  # never in UTF-8
        del content["model"]["vocab"][CHARACTERS[byte]]
    files.write_json(tmp_path / "tokenizer.json", content)
    with pytest.raises(TokenizerError, match="13 of the 256 bytes are not tokens"):
        tokenizer.load(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("missing.json", None, "does not exist"),
        ("broken.json", b"{", "is not JSON"),
        ("list.json", b"[]", "holds a JSON list"),
        ("any.bin", b"", "no format that we know"),
        ("empty.tiktoken", b"", "holds no tokens"),
        ("bad.tiktoken", b"YQ== 0\nYQ 1 2\n", "line 2"),
        ("twice.tiktoken", b"YQ== 0\nYg== 0\n", "line 2: rank 0"),
        ("few.tiktoken", b"YQ== 0\n", "is not a token, but all 256"),
        ("tokenizer_config.json", {"tokenizer_class": "GPT2Tokenizer"}, "settings of transformers"),
        ("saved.json", {"tokenizer_class": "GPT2Tokenizer"}, "settings of transformers"),
        ("config.json", {"model_type": "gpt2"}, "a model's configuration"),
        ("encoder.json", {"a": 0}, r"copy it to vocab.json"),
        ("bpe.json", {"a": 0, "b": 1}, "a vocabulary without its merges"),
        ("vocab.bpe", b"#version: 0.2\n", r"copy it to merges.txt"),
        ("tokenizer.model", b"\x0a\x0e\x0a\x05<unk>\x15\x00", "claims 14 bytes, but 9 are left"),
        ("spiece.model", b"??", "holds no field of a message at byte 0"),
        ("model.gguf", b"GGUF\x03\x00\x00\x00", "ends in the number of tensors"),
        ("tokenizer.json", b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer"),
        ("tokenizer.pkl", b"\x80\x04\x95", "pickle, which could run anything"),
        ("model.safetensors.index.json", {"weight_map": {}}, "an index of a model's weights"),
        ("other.json", {"version": "1.0"}, "broken: there is no '\\w+'"),
        ("deep.json", b"[" * 100_000, "nested too deeply"),
        ("deep.json", b'{"model":' * 100_000, "nested too deeply"),
        ("number.json", b'{"model":' + b"9" * 5000 + b"}", "is not JSON"),
    ],
)
def test_known_files_that_are_not_ours_are_named(tmp_path, name, content, says):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    usage = {"split_pattern": "gpt2"} if name.endswith(".tiktoken") else {}
    with pytest.raises(TokenizerError, match=says):
        tokenizer.load(path, **usage)
    if name == "encoder.json":
        with pytest.raises(FormatError, match=says):
            tokenizer.load(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer.json", "own.tiktoken", "vocab.json", "x.bin", "tokenizer.model"])
def test_what_is_no_regular_file_is_not_opened(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(FormatError):
        tokenizer.load(tmp_path / name, split_pattern="gpt2")


def test_special_tokens_that_would_fill_the_memory(tmp_path):
    (tmp_path / "own.tiktoken").write_bytes(ranks())
    names = {
        f"{i:03d}" + "".join(chr(0x100 + (i * j) % 4000) for j in range(3000)): 300 + i for i in range(400)
    }
    tok = tokenizer.load(tmp_path, split_pattern="gpt2", special_tokens=names)
    with pytest.raises(tokenizer.SpecialTokenError, match="too many different beginnings"):
        tok.encode_batch(["text"])
    with pytest.raises(tokenizer.TrainingError, match=r"num_reserved=1000000000000 must be at most"):
        tokenizer.train(["text"], vocab_size=300, num_reserved=10**12)
