"""Files of strangers: what is hostile ends in an error of ours, what is known is named for what it is."""

import base64
import json
import os
from pathlib import Path

import pytest

from tokmill import tokenizer
from tokmill.tokenizer import FormatError, Tokenizer, TokenizerError
from tokmill.tokenizer.core.text import CHARACTERS
from tokmill.tokenizer.formats import files


def huggingface_file(small: Tokenizer, folder: Path, **changes: object) -> Path:
    """An export with other values under some keys of its outermost object."""
    path = next(file for file in small.save(folder, "huggingface") if file.name == "tokenizer.json")
    files.write_json(path, json.loads(path.read_bytes()) | changes)
    return path


def ranks(*others: tuple[bytes, object]) -> bytes:
    """A `.tiktoken` file of the bytes and other tokens."""
    tokens = [(bytes([byte]), byte) for byte in range(256)]
    return b"".join(base64.b64encode(token) + f" {rank}\n".encode() for token, rank in [*tokens, *others])


def added(name: str, token: int, **flags: object) -> dict[str, object]:
    """A special token of `tokenizer.json`."""
    return {"id": token, "content": name, "special": True, **flags}


@pytest.mark.parametrize("number", [999_999_999, 10**18, 10**4000])
def test_a_special_token_that_is_named_like_a_reserved_one(
    small: Tokenizer, tmp_path: Path, number: int
) -> None:
    name = f"<|reserved_{number}|>"
    tok = tokenizer.load(huggingface_file(small, tmp_path, added_tokens=[added(name, 400)]))
    assert tok.definition.num_reserved == 0
    assert tok.encode(f"a{name}", allowed_special="all")[1:] == [400]


@pytest.mark.parametrize("rank", [10**18, 1 << 21, -1, "9" * 5000, 1.5])
def test_ranks_beyond_every_vocabulary(tmp_path: Path, rank: object) -> None:
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
def test_sidecars_whose_values_have_another_type(tmp_path: Path, changes: dict[str, object]) -> None:
    (tmp_path / "own.tiktoken").write_bytes(ranks())
    tok = tokenizer.load(tmp_path, split_pattern="gpt2", special_tokens={"<s>": 300})
    _, sidecar = tok.save(tmp_path / "saved", "tiktoken")
    sidecar.write_bytes(files.dump_json(json.loads(sidecar.read_bytes()) | changes))
    with pytest.raises(TokenizerError):
        tokenizer.load(tmp_path / "saved")


@pytest.mark.parametrize("vocab", [{"a": True}, {"a": 1.0}, {"a": "1"}, {"a": None}, {"a": 10**30}, {"": 1}])
def test_ids_that_are_none(small: Tokenizer, tmp_path: Path, vocab: dict[str, object]) -> None:
    small.save(tmp_path, "gpt2")
    path = tmp_path / "vocab.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | vocab))
    with pytest.raises(TokenizerError):
        tokenizer.load(tmp_path)


def test_a_byte_level_vocabulary_without_some_bytes(small: Tokenizer, tmp_path: Path) -> None:
    path = huggingface_file(small, tmp_path)
    content = json.loads(path.read_bytes())
    never_in_utf8 = [0xC0, 0xC1, *range(0xF5, 0x100)]
    for byte in never_in_utf8:
        del content["model"]["vocab"][CHARACTERS[byte]]
    files.write_json(path, content)
    with pytest.raises(TokenizerError, match="13 of the 256 bytes are not tokens"):
        tokenizer.load(path)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
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
def test_known_files_that_are_not_ours_are_named(
    tmp_path: Path, name: str, content: object, says: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    with pytest.raises(FormatError, match=says):
        tokenizer.load(path)


def test_a_folder_with_a_known_file_alone_names_it(tmp_path: Path) -> None:
    (tmp_path / "encoder.json").write_text('{"a": 0}')
    with pytest.raises(FormatError, match=r"copy it to vocab.json"):
        tokenizer.load(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer.json", "own.tiktoken", "vocab.json", "x.bin", "tokenizer.model"])
def test_what_is_no_regular_file_is_not_opened(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(FormatError):
        tokenizer.load(tmp_path / name, split_pattern="gpt2")


@pytest.mark.parametrize("name", ["tokenizer.model", "ranks.txt", "ranks", "own.tiktoken"])
def test_ranks_are_known_by_their_first_line(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(ranks((b"ab", 256)))
    tok = tokenizer.load(tmp_path / name, split_pattern="gpt2")
    assert tok.encode("ab") == [256]
    if name == "tokenizer.model":  # as Llama 3 publishes it
        assert tokenizer.load(tmp_path, split_pattern="gpt2") == tok


def test_an_empty_token_is_a_hole(tmp_path: Path) -> None:
    """As in Whisper's multilingual file, whose last line is `= 50256`."""
    (tmp_path / "own.tiktoken").write_bytes(ranks((b"ab", 256)) + b"= 257\n")
    tok = tokenizer.load(tmp_path, split_pattern="gpt2", special_tokens={"<|endoftext|>": 258})
    assert tok.encode("ab<|endoftext|>", allowed_special="all") == [256, 258]
    with pytest.raises(TokenizerError, match="257"):
        tok.decode([257])


def test_special_tokens_that_would_fill_the_memory(tmp_path: Path) -> None:
    (tmp_path / "own.tiktoken").write_bytes(ranks())
    names = {
        f"{i:03d}" + "".join(chr(0x100 + (i * j) % 4000) for j in range(3000)): 300 + i for i in range(400)
    }
    tok = tokenizer.load(tmp_path, split_pattern="gpt2", special_tokens=names)
    with pytest.raises(tokenizer.SpecialTokenError, match="too many different beginnings"):
        tok.encode_batch(["text"])


def test_training_does_not_name_more_reserved_tokens_than_there_can_be() -> None:
    with pytest.raises(tokenizer.TrainingError, match=r"num_reserved=1000000000000 must be at most"):
        tokenizer.train(["text"], vocab_size=300, num_reserved=10**12)


def test_a_vocabulary_may_hold_any_words(tmp_path: Path) -> None:
    """One that was trained on code has tokens "config" and "vocab", and is no tekken.json for that."""
    words = ["config", "vocab"]
    tok = tokenizer.train(words * 20, family="byte_bpe", vocab_size=265, split_pattern="gpt2")
    assert {word.encode() for word in words} <= set(tok.vocab)

    tok.save(tmp_path / "gpt2", format="gpt2")

    assert tokenizer.load(tmp_path / "gpt2").vocab == tok.vocab
