"""Special tokens are renamed, claimed and added without moving an id, in every family and format."""

from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from tests.test_tokenizer.conftest import BYTE_FORMATS, TRAINING_TEXTS, trained_by_sentencepiece
from tokmill import tokenizer
from tokmill.tokenizer import SpecialTokenError, Tokenizer, TokenizerError, VocabularyError, attestation
from tokmill.tokenizer.components.post_processors import Part, Template
from tokmill.tokenizer.pipeline.families import FAMILIES

SIZES = {
    "longest_match": 300,
    "byte_bpe": 300,
    "char_bpe": 150,
    "unigram": 90,
    "wordpiece": 140,
    "word_level": 30,
}


def reserving(family: str) -> Tokenizer:
    return tokenizer.train(
        TRAINING_TEXTS,
        family=family,
        vocab_size=SIZES.get(family, 40),
        special_tokens=["<|endoftext|>"],
        num_reserved=4,
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_a_claimed_token_keeps_its_id_and_no_other_moves(family: str, tmp_path: Path) -> None:
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
def test_a_padded_vocabulary_has_reserved_tokens_at_its_end(family: str) -> None:
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


@pytest.mark.parametrize("name", BYTE_FORMATS)
def test_every_format_keeps_what_is_claimed_and_reserved(name: str, tmp_path: Path) -> None:
    tok = reserving("byte_bpe").rename({"<|reserved_1|>": "<|tool|>"}).pad_to_multiple_of(128)
    tok.save(tmp_path, name)
    found = tokenizer.load(tmp_path)
    assert found.special_tokens == tok.special_tokens
    assert found.definition.vocabulary.reserved == tok.definition.vocabulary.reserved


def test_tokenizers_reads_a_claimed_and_padded_vocabulary(tmp_path: Path) -> None:
    tok = reserving("byte_bpe").claim(["<|tool|>"]).pad_to_multiple_of(64)
    other = tokenizers.Tokenizer.from_file(str(tok.save(tmp_path, "huggingface")[0]))
    assert other.get_vocab_size() == tok.vocab_size == 320
    assert other.encode("the<|tool|>fox").ids == tok.encode("the<|tool|>fox", allowed_special="all")


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_sentencepiece_reads_a_claimed_and_padded_vocabulary(model_type: str, tmp_path: Path) -> None:
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


def test_roles_and_the_template_follow_a_renamed_token() -> None:
    tok = reserving("byte_bpe").with_roles(pad="<|reserved_3|>")
    parts = Part("special", "<|endoftext|>"), Part("sequence", "A")
    spec = tok.spec() | {"template": Template(parts, (*parts, Part("sequence", "B"))).spec(), "version": 2}
    tok = Tokenizer.from_spec(spec).rename({"<|endoftext|>": "<|stop|>", "<|reserved_3|>": "<|blank|>"})
    assert (tok.roles["bos"], tok.roles["eos"], tok.roles["pad"]) == ("<|stop|>", "<|stop|>", "<|blank|>")
    assert tok.encode("the", add_special_tokens=True)[0] == tok.special_tokens["<|stop|>"]


def test_a_claimed_name_does_not_take_a_role_from_another_token() -> None:
    names = ["</s>", "<|blank|>"]
    tok = tokenizer.train(TRAINING_TEXTS, vocab_size=300, special_tokens=names, num_reserved=1)
    assert tok.claim(["<|endoftext|>"]).roles["eos"] == "</s>"


@given(st.permutations(["<|reserved_0|>", "<|reserved_1|>", "<|reserved_2|>", "<|reserved_3|>"]))
def test_names_may_be_exchanged(names: list[str]) -> None:
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
def test_what_cannot_be_done_is_named(change: Any, says: str) -> None:
    tok = reserving("byte_bpe")
    with pytest.raises(TokenizerError, match=says) as raised:
        change(tok)
    assert isinstance(raised.value, VocabularyError | SpecialTokenError)


def test_the_unknown_token_is_not_renamed() -> None:
    with pytest.raises(VocabularyError, match="the unknown token"):
        reserving("word_level").rename({"[UNK]": "<unk>"})


def test_ready_sets_bring_their_tokens_and_roles() -> None:
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


def test_an_unknown_set_is_refused() -> None:
    with pytest.raises(tokenizer.TrainingError, match="special_sets"):
        tokenizer.train(TRAINING_TEXTS, vocab_size=310, special_sets=["speech"])
