"""Mistral's tekken.json, against its definition: tiktoken's ids, moved behind the special tokens."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import tiktoken

from tests.test_tokenizer.conftest import TRAINING_TEXTS
from tokmill import tokenizer
from tokmill.tokenizer import FormatError, Tokenizer

PATTERN = r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
NUM_SPECIAL = 24
TEXTS = ["the quick brown fox", "The 12 foxes\n\n  jump", "naïve café, Ünïcödé 日本語 🦊", "", " \n\t "]


@pytest.fixture(scope="module")
def tokens() -> list[bytes]:
    """The bytes in their order, and tokens that were learned."""
    learned = tokenizer.train(TRAINING_TEXTS, vocab_size=370, split_pattern="gpt2").merges
    return [*(bytes([byte]) for byte in range(256)), *(left + right for left, right in learned)]


def file_of(tokens: list[bytes], **changes: Any) -> dict[str, Any]:
    """The content of a tekken.json with more tokens than it uses; with other values under some keys."""
    vocab = [
        {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
        for rank, token in enumerate(tokens)
    ]
    config = {
        "pattern": PATTERN,
        "num_vocab_tokens": len(tokens),
        "default_vocab_size": NUM_SPECIAL + len(tokens) - 10,
        "default_num_special_tokens": NUM_SPECIAL,
        "version": "v3",
    }
    config |= changes.pop("config", {})
    return {"config": config, "vocab": vocab, **changes}


def loaded(folder: Path, content: dict[str, Any], name: str = "tekken.json") -> Tokenizer:
    (folder / name).write_text(json.dumps(content))
    return tokenizer.load(folder / name)


def test_ids_are_those_of_tiktoken_after_the_special_tokens(tokens, tmp_path):
    tok = loaded(tmp_path, file_of(tokens))
    ranks = {token: rank for rank, token in enumerate(tokens[:-10])}
    other = tiktoken.Encoding("tekken", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})

    assert tok.vocab_size == NUM_SPECIAL + len(tokens) - 10
    for text in TEXTS:
        assert tok.encode(text) == [NUM_SPECIAL + rank for rank in other.encode_ordinary(text)]


def test_special_tokens_are_listed_filled_up_or_those_of_the_first_tekken(tokens, tmp_path):
    first = list(loaded(tmp_path, file_of(tokens), "mistral.json").special_tokens)
    assert first[:4] == ["<unk>", "<s>", "</s>", "[INST]"]
    assert first[19:] == ["[TOOL_CONTENT]", "<SPECIAL_20>", "<SPECIAL_21>", "<SPECIAL_22>", "<SPECIAL_23>"]
    listed = [{"rank": rank, "token_str": name} for rank, name in ((1, "</s>"), (0, "<s>"))]
    tok = loaded(tmp_path, file_of(tokens, special_tokens=listed, config={"version": "v13"}))
    assert list(tok.special_tokens)[:3] == ["<s>", "</s>", "<SPECIAL_2>"]
    assert tok.encode("<s>the</s>", allowed_special="all")[::2] == [0, 1]


def test_what_tekken_cannot_express_is_refused_by_name(tokens, tmp_path):
    for specials, says in ((["<|end|>"], "special tokens to have the first ids"), ([], "the 256 bytes, in")):
        with pytest.raises(FormatError, match=f"format='tekken'.*{says}"):
            tokenizer.train(TRAINING_TEXTS, vocab_size=300, special_tokens=specials).save(tmp_path, "tekken")
    tok = loaded(tmp_path, file_of(tokens))
    (file,) = tok.save(tmp_path / "again", "tekken")
    assert tokenizer.load(file) == tok
    content = json.loads(file.read_bytes())
    assert content["config"]["num_vocab_tokens"] == len(content["vocab"])
    with pytest.raises(FormatError, match="pass the path alone"):
        tokenizer.load(tmp_path / "again", split_pattern="gpt2")
    with pytest.raises(FormatError, match=r"format='tekken'.*no normalizer"):
        Tokenizer.from_spec(tok.spec() | {"normalizer": "nfc"}).save(tmp_path, "tekken")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"config": {"default_vocab_size": 10**9}}, "at most"),
        ({"config": {"default_vocab_size": 20_000}}, "vocab has"),
        ({"config": {"default_num_special_tokens": -1}}, "must leave room"),
        (
            {"config": {"default_num_special_tokens": "many"}},
            "broken: a value is of another form .*ValueError",
        ),
        ({"config": {"version": "v11"}}, "special_tokens is missing.*version='v11'"),
        ({"config": {"pattern": 7}}, "broken|split_pattern"),
        ({"special_tokens": [{"rank": 1, "token_str": "<s>"}]}, "ranks from 0 on"),
        (
            {"special_tokens": [{"rank": 0, "token_str": "a"}, {"rank": 1, "token_str": "a"}]},
            "ranks from 0 on",
        ),
        ({"special_tokens": [{"rank": i, "token_str": f"<{i}>"} for i in range(30)]}, "30 names"),
        ({"vocab": [{"rank": 0, "token_bytes": "?", "token_str": None}] * 500}, r"vocab\[0\].*base64"),
        ({"vocab": [{"rank": 0, "token_bytes": "AQ==", "token_str": None}] * 500}, r"vocab\[0\].*256 bytes"),
        ({"vocab": [7] * 500}, "broken"),
    ],
)
def test_a_broken_file_is_refused(tokens, tmp_path, changes, says):
    with pytest.raises(tokenizer.TokenizerError, match=says):
        loaded(tmp_path, file_of(tokens, **changes))
