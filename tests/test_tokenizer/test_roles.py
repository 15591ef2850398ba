"""Roles of special tokens, and chat templates: every format keeps them, other libraries find them."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import sentencepiece

from tests.test_tokenizer.conftest import (
    BYTE_FORMATS,
    TRAINING_TEXTS,
    in_tekken_order,
    like_bert,
    trained_by_sentencepiece,
)
from tokmill import tokenizer
from tokmill.tokenizer import FormatError, Tokenizer, VocabularyError

NAMES = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|blank|>", "<|before|>"]
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}ä"


@pytest.fixture(scope="module")
def plain() -> Tokenizer:
    return tokenizer.train(TRAINING_TEXTS, vocab_size=300, special_tokens=NAMES)


@pytest.fixture(scope="module")
def given(plain: Tokenizer) -> Tokenizer:
    """A tokenizer whose roles and chat templates do not follow from names."""
    roles = {"eos": "<|im_end|>", "pad": "<|blank|>", "fim_prefix": "<|before|>", "turn_start": None}
    return plain.with_roles(**roles).with_chat_template(TEMPLATE).with_chat_template("tools", "tool_use")


def test_roles_follow_from_names_unless_they_are_given(plain: Tokenizer) -> None:
    following = {"eos": "<|endoftext|>", "turn_start": "<|im_start|>", "turn_end": "<|im_end|>"}
    assert plain.roles == following
    assert plain.with_roles(eos="<|im_end|>").roles == following | {"eos": "<|im_end|>"}
    assert "eos" not in plain.with_roles(eos=None).roles
    assert plain.with_roles(eos="<|im_end|>").with_roles(eos="<|endoftext|>").spec() == plain.spec()


def test_the_roles_of_bert_follow_from_its_names() -> None:
    names = {"unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]", "pad": "[PAD]"}
    assert like_bert().roles == names


@pytest.mark.parametrize("name", BYTE_FORMATS)
def test_every_format_keeps_them(given: Tokenizer, name: str, tmp_path: Path) -> None:
    given.save(tmp_path, name)
    found = tokenizer.load(tmp_path)
    assert found.roles == given.roles
    assert found.chat_templates == {"default": TEMPLATE, "tool_use": "tools"}
    assert found.encode("the fox") == given.encode("the fox")


@pytest.mark.parametrize("name", ["tekken", "bert"])
def test_formats_without_roles_have_them_beside_their_files(
    small: Tokenizer, name: str, tmp_path: Path
) -> None:
    tok = in_tekken_order(small) if name == "tekken" else like_bert()
    tok.with_chat_template(TEMPLATE).with_roles(pad=None, mask=[*tok.special_tokens][2]).save(tmp_path, name)
    found = tokenizer.load(tmp_path)
    assert found.chat_templates == {"default": TEMPLATE}
    assert "pad" not in found.roles
    assert found.roles["mask"] == [*tok.special_tokens][2]


def test_a_tokenizer_without_any_has_no_file_beside_it(plain: Tokenizer, tmp_path: Path) -> None:
    plain.save(tmp_path, "gpt2")
    assert not (tmp_path / "tokenizer_config.json").exists()


PIECES: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({}, {"bos": "<s>", "eos": "</s>"}),
    (
        {"bos_piece": "[A]", "eos_piece": "[Z]", "pad_piece": "[0]", "pad_id": 3},
        {"bos": "[A]", "eos": "[Z]", "pad": "[0]"},
    ),
    (
        {"bos_id": -1, "eos_piece": "<|im_end|>", "control_symbols": ["<pad>"]},
        {"eos": "<|im_end|>", "pad": "<pad>"},
    ),
    ({"bos_id": -1, "eos_id": -1, "control_symbols": ["[PAD]", "<eos>"]}, {}),
]


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
@pytest.mark.parametrize(("options", "roles"), PIECES)
def test_a_sentencepiece_model_keeps_its_roles(
    options: dict[str, Any], roles: dict[str, str], model_type: str, tmp_path: Path
) -> None:
    model = trained_by_sentencepiece(vocab_size=300, model_type=model_type, **options)
    (tmp_path / "first.model").write_bytes(model)
    tok = tokenizer.load(tmp_path / "first.model")
    named = {role: tok.roles[role] for role in ("bos", "eos", "pad") if role in tok.roles}
    assert named == roles
    written = tok.save(tmp_path / "second", "sentencepiece")[0]
    assert tokenizer.load(written).roles == tok.roles
    for other in (
        sentencepiece.SentencePieceProcessor(model_proto=data) for data in (model, written.read_bytes())
    ):
        ids = {"bos": other.bos_id(), "eos": other.eos_id(), "pad": other.pad_id()}
        assert ids == {role: tok.special_tokens.get(roles.get(role, ""), -1) for role in ids}


def test_a_role_that_was_taken_away_is_none_in_sentencepiece(tmp_path: Path) -> None:
    (tmp_path / "a.model").write_bytes(trained_by_sentencepiece(vocab_size=300))
    tok = tokenizer.load(tmp_path / "a.model").with_roles(bos=None, eos="<s>")
    written = tok.save(tmp_path / "b", "sentencepiece")[0]
    other = sentencepiece.SentencePieceProcessor(model_proto=written.read_bytes())
    assert (other.bos_id(), other.eos_id()) == (-1, tok.special_tokens["<s>"])
    assert tokenizer.load(tmp_path / "b").roles == tok.roles


def test_settings_of_published_folders_are_read(plain: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(plain.save(tmp_path, "huggingface")[0].read_bytes())
    config = {
        "bos_token": None,
        "eos_token": {"__type": "AddedToken", "content": "<|im_end|>", "lstrip": False},
        "chat_template": [{"name": "default", "template": "old"}, {"name": "rag", "template": "r"}],
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "special_tokens_map.json").write_text('{"pad_token": "<|blank|>", "eos_token": "<|before|>"}')
    (tmp_path / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    found = tokenizer.load(tmp_path)
    assert (found.roles["eos"], found.roles["pad"]) == ("<|im_end|>", "<|blank|>")
    assert found.chat_templates == {"default": TEMPLATE, "rag": "r"}


def test_a_role_of_a_missing_token_is_left_out_with_a_warning(
    plain: Tokenizer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plain.save(tmp_path, "huggingface")
    (tmp_path / "tokenizer_config.json").write_text('{"pad_token": "[PAD]"}')
    with caplog.at_level(logging.WARNING):
        assert "pad" not in tokenizer.load(tmp_path).roles
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"pad_token": "[PAD]" * 10_000}))
        tokenizer.load(tmp_path)
    assert "[PAD]" in caplog.text
    assert len(caplog.text) < 2000  # however long a name a file has


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer_config.json", b"{"),
        ("tokenizer_config.json", b"[]"),
        ("tokenizer_config.json", b'{"chat_template": 3}'),
        ("tokenizer_config.json", b'{"chat_template": [{"name": "default"}]}'),
        ("tokenizer_config.json", b'{"special_token_roles": 5}'),
        ("tokenizer_config.json", b'{"special_token_roles": {"fim": ["<|before|>"]}}'),
        ("special_tokens_map.json", b'{"bos_token": {}}'),
        ("chat_template.jinja", b"\xff"),
    ],
)
def test_broken_settings_are_refused_by_name(
    plain: Tokenizer, name: str, content: bytes, tmp_path: Path
) -> None:
    plain.save(tmp_path, "huggingface")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FormatError, match=r"tokenizer_config|special_tokens_map|chat_template"):
        tokenizer.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"roles": {"end": "<|im_end|>"}}, "'end' is not known"),
        ({"roles": {"eos": "<|im_start>"}}, "not a special token"),
        ({"roles": ["eos"]}, "by role"),
        ({"chat_templates": {"default": 5}}, "must be a text"),
        ({"chat_templates": {"default": "x" * ((1 << 20) + 1)}}, "at most"),
        ({"chat_templates": {"": "x"}}, "short and printable"),
        ({"chat_templates": {str(i): "x" for i in range(65)}}, "at most 64"),
    ],
)
def test_what_is_no_role_or_template_is_refused(plain: Tokenizer, change: dict[str, Any], says: str) -> None:
    with pytest.raises(VocabularyError, match=says):
        Tokenizer.from_spec(plain.spec() | change)


def test_auto_tokenizer_has_the_roles_and_the_template(plain: Tokenizer, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="no transformers here")
    tok = plain.with_roles(eos="<|im_end|>", pad="<|blank|>").with_chat_template(TEMPLATE)
    tok.save(tmp_path, "huggingface")
    other = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert (other.eos_token, other.pad_token, other.bos_token) == ("<|im_end|>", "<|blank|>", None)
    assert other.chat_template == TEMPLATE
    tok.with_chat_template("tools", "tool_use").save(tmp_path / "two", "huggingface")
    named = transformers.AutoTokenizer.from_pretrained(tmp_path / "two").chat_template
    assert named == {"default": TEMPLATE, "tool_use": "tools"}
    other.save_pretrained(tmp_path / "theirs")
    again = tokenizer.load(tmp_path / "theirs")
    assert again.chat_templates == tok.chat_templates
    assert (again.roles["eos"], again.roles["pad"]) == ("<|im_end|>", "<|blank|>")
