"""Roles and new names of special tokens, and chat templates, in every family and format."""

import json
import logging
from typing import Any

import hypothesis
import pytest
import sentencepiece
from hypothesis import strategies as st

from tests.test_tokenizer.conftest import (
    TRAINING_TEXTS,
    trained_by_sentencepiece,
)
from tokmill import tokenizer
from tokmill.tokenizer import (
    FormatError,
    SpecialTokenError,
    Tokenizer,
    TokenizerError,
    VocabularyError,
    attestation,
)
from tokmill.tokenizer.components.post_processors import Part, Template
from tokmill.tokenizer.pipeline.families import FAMILIES

NAMES = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|blank|>", "<|before|>"]


@pytest.fixture(scope="module")
def plain() -> Tokenizer:
    return tokenizer.train(TRAINING_TEXTS, vocab_size=300, special_tokens=NAMES)


def test_roles_follow_from_names_unless_they_are_given(plain):
    following = {"eos": "<|endoftext|>", "turn_start": "<|im_start|>", "turn_end": "<|im_end|>"}
    assert plain.roles == following
    assert plain.with_roles(eos="<|im_end|>").roles == following | {"eos": "<|im_end|>"}
    assert "eos" not in plain.with_roles(eos=None).roles
    assert plain.with_roles(eos="<|im_end|>").with_roles(eos="<|endoftext|>").spec() == plain.spec()


def test_a_tokenizer_without_any_has_no_file_beside_it(plain, tmp_path):
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
def test_a_sentencepiece_model_keeps_its_roles(options, roles, model_type, tmp_path):
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


def test_settings_of_published_folders_are_read(plain, tmp_path):
    (tmp_path / "tokenizer.json").write_bytes(plain.save(tmp_path, "huggingface")[0].read_bytes())
    config = {
        "bos_token": None,
        "eos_token": {"__type": "AddedToken", "content": "<|im_end|>", "lstrip": False},
        "chat_template": [{"name": "default", "template": "old"}, {"name": "rag", "template": "r"}],
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "special_tokens_map.json").write_text('{"pad_token": "<|blank|>", "eos_token": "<|before|>"}')
    (tmp_path / "chat_template.jinja").write_text("ä", encoding="utf-8")
    found = tokenizer.load(tmp_path)
    assert (found.roles["eos"], found.roles["pad"]) == ("<|im_end|>", "<|blank|>")
    assert found.chat_templates == {"default": "ä", "rag": "r"}


def test_a_role_of_a_missing_token_is_left_out_with_a_warning(plain, tmp_path, caplog):
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
def test_broken_settings_are_refused_by_name(plain, name, content, tmp_path):
    plain.save(tmp_path, "huggingface")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FormatError, match=r"tokenizer_config|special_tokens_map|chat_template"):
        tokenizer.load(tmp_path)


def reserving(family: str) -> Tokenizer:
    return tokenizer.train(
        TRAINING_TEXTS,
        family=family,
        vocab_size=300 if family in {"byte_bpe", "longest_match"} else 90,
        allow_smaller=True,
        special_tokens=["<|endoftext|>"],
        num_reserved=4,
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_a_claimed_token_keeps_its_id_and_no_other_moves(family, tmp_path):
    tok = reserving(family)
    claimed = tok.claim(["<|im_start|>", "<|im_end|>"])
    assert claimed.special_tokens["<|im_start|>"] == tok.special_tokens["<|reserved_0|>"]
    assert claimed.special_tokens["<|im_end|>"] == tok.special_tokens["<|reserved_1|>"]
    assert claimed.definition.vocabulary.reserved == ["<|reserved_2|>", "<|reserved_3|>"]
    assert claimed.definition.num_reserved == 2
    assert [*claimed.definition.vocabulary.ordinary()] == [*tok.definition.vocabulary.ordinary()]
    assert claimed.encode_batch(TRAINING_TEXTS).to_lists() == tok.encode_batch(TRAINING_TEXTS).to_lists()
    begins = [claimed.special_tokens["<|im_start|>"], claimed.special_tokens["<|im_end|>"]]
    assert claimed.encode("<|im_start|><|im_end|>", allowed_special="all") == begins
    assert (claimed.roles["turn_start"], claimed.roles["turn_end"]) == ("<|im_start|>", "<|im_end|>")
    claimed.save(tmp_path)
    assert tokenizer.load(tmp_path).spec() == claimed.spec()
    attestation.check(tokenizer.load(tmp_path), attestation.make(claimed))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_padded_vocabulary_has_reserved_tokens_at_its_end(family):
    tok = reserving(family)
    padded = tok.claim(["<|tool|>"]).pad_to_multiple_of(64)
    assert padded.vocab_size % 64 == 0
    assert 0 <= padded.vocab_size - tok.vocab_size < 64
    added = [*padded.special_tokens][len(tok.special_tokens) :]
    assert added[:2] == ["<|reserved_0|>", "<|reserved_4|>"]  # the first free names
    kinds = padded.definition.model.kinds()
    assert kinds[tok.vocab_size :] == ["reserved"] * (padded.vocab_size - tok.vocab_size)
    assert padded.encode_batch(TRAINING_TEXTS).to_lists() == tok.encode_batch(TRAINING_TEXTS).to_lists()
    assert padded.pad_to_multiple_of(64).spec() == padded.spec()
    assert padded.pad_to_multiple_of(1).spec() == padded.spec()


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_sentencepiece_reads_a_claimed_and_padded_vocabulary(model_type, tmp_path):
    model = trained_by_sentencepiece(
        vocab_size=300, model_type=model_type, control_symbols=["<unused0>", "<unused1>"]
    )
    (tmp_path / "first.model").write_bytes(model)
    tok = tokenizer.load(tmp_path / "first.model").claim(["<|tool|>"]).pad_to_multiple_of(64)
    written = tok.save(tmp_path, "sentencepiece")[0]
    other = sentencepiece.SentencePieceProcessor(model_proto=written.read_bytes())
    assert other.vocab_size() == tok.vocab_size
    assert tok.vocab_size % 64 == 0
    assert other.piece_to_id("<|tool|>") == tok.special_tokens["<|tool|>"] == 3
    assert [other.encode(text) for text in TRAINING_TEXTS] == [tok.encode(text) for text in TRAINING_TEXTS]
    assert tokenizer.load(written).spec() == tok.spec()


def test_roles_and_the_template_follow_a_renamed_token():
    tok = reserving("byte_bpe").with_roles(pad="<|reserved_3|>")
    parts = Part("special", "<|endoftext|>"), Part("sequence", "A")
    spec = tok.spec() | {"template": Template(parts, (*parts, Part("sequence", "B"))).spec(), "version": 2}
    tok = Tokenizer.from_spec(spec).rename({"<|endoftext|>": "<|stop|>", "<|reserved_3|>": "<|blank|>"})
    assert (tok.roles["bos"], tok.roles["eos"], tok.roles["pad"]) == ("<|stop|>", "<|stop|>", "<|blank|>")
    assert tok.encode("the", add_special_tokens=True)[0] == tok.special_tokens["<|stop|>"]


def test_a_claimed_name_does_not_take_a_role_from_another_token():
    names = ["</s>", "<|blank|>"]
    tok = tokenizer.train(TRAINING_TEXTS, vocab_size=300, special_tokens=names, num_reserved=1)
    assert tok.claim(["<|endoftext|>"]).roles["eos"] == "</s>"


@hypothesis.given(st.permutations(["<|reserved_0|>", "<|reserved_1|>", "<|reserved_2|>", "<|reserved_3|>"]))
def test_names_may_be_exchanged(names):
    tok = reserving("word_level")
    exchanged = tok.rename(dict(zip(sorted(names), names, strict=True)))
    assert {**exchanged.special_tokens} == {
        **tok.special_tokens,
        **{new: tok.special_tokens[old] for old, new in zip(sorted(names), names, strict=True)},
    }


REFUSED: list[tuple[Any, str]] = [
    (lambda tok: tok.claim(["<a>", "<b>", "<c>", "<d>", "<e>"]), "5 names, but 4 special tokens"),
    (lambda tok: tok.claim(["<a>", "<a>"]), "named twice"),
    (lambda tok: tok.claim(["x"]), "two bytes or more"),
    (lambda tok: tok.claim("<a>"), "must be a list"),
    (lambda tok: tok.claim(["the"]), "is a token already"),
    (lambda tok: tok.claim(["<|endoftext|>"]), "is a token already"),
    (lambda tok: tok.rename({"<|nothing|>": "<a>"}), "not a special token"),
    (lambda tok: tok.rename({"<|reserved_0|>": "<|reserved_1|>"}), "is a token already"),
    (lambda tok: tok.pad_to_multiple_of(0), "at least 1"),
    (lambda tok: tok.pad_to_multiple_of(1 << 30), "at most"),
]


@pytest.mark.parametrize(("change", "says"), REFUSED)
def test_what_cannot_be_done_is_named(change, says):
    tok = reserving("byte_bpe")
    with pytest.raises(TokenizerError, match=says) as raised:
        change(tok)
    assert isinstance(raised.value, VocabularyError | SpecialTokenError)


def test_the_unknown_token_is_not_renamed():
    with pytest.raises(VocabularyError, match="the unknown token"):
        reserving("word_level").rename({"[UNK]": "<unk>"})


def test_ready_sets_bring_their_tokens_and_roles():
    sets = {"special_sets": ["fim", "bert"], "pad_to_multiple_of": 64, "roles": {"pad": "<|fim_pad|>"}}
    tok = tokenizer.train(TRAINING_TEXTS, vocab_size=310, special_tokens=["[CLS]", "<|end|>"], **sets)
    assert tok.vocab_size == 320
    assert [*tok.special_tokens][:4] == ["[CLS]", "<|end|>", "<|fim_prefix|>", "<|fim_middle|>"]
    assert tok.roles == {
        "pad": "<|fim_pad|>",
        "cls": "[CLS]",
        "sep": "[SEP]",
        "mask": "[MASK]",
        "fim_prefix": "<|fim_prefix|>",
        "fim_middle": "<|fim_middle|>",
        "fim_suffix": "<|fim_suffix|>",
    }
