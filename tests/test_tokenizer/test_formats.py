"""Files: every format comes back alike, other libraries read them alike, and nothing is lost in silence."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers

from tests.test_tokenizer.conftest import (
    BYTE_FORMATS,
    SPECIALS,
    TRAINING_TEXTS,
    edited,
    fit_for,
    listed,
)
from tests.test_tokenizer.test_refused_files import ranks
from tokmill import tokenizer
from tokmill.tokenizer import FormatError, Tokenizer, TokenizerError, VocabularyError
from tokmill.tokenizer.core.text import BYTE_ORDER, to_text
from tokmill.tokenizer.formats import WRITERS, files
from tokmill.tokenizer.splitting import SPLIT_PATTERNS

ROLES = {"eos": "<|end|>", "pad": "<|reserved_1|>", "fim_prefix": "<|tool|>", "turn_start": None}
CHATS = {"default": "{% for m in messages %}<|end|>{{ m.content }}\n{% endfor %}ä", "tool_use": "tools"}
HOW: dict[str, dict[str, Any]] = {
    "gpt2": {"normalizer": "nfkc+lowercase", "digits": "single", "template": "<|end|> $A"},
    "cl100k": {"template": "$A <|tool|>", "pair_template": "$B:1 <|tool|>:1 $A"},
    "qwen2": {},
}


@pytest.mark.parametrize("pattern", HOW)
@pytest.mark.parametrize("name", WRITERS)
def test_every_format_comes_back(name, pattern, tmp_path):
    """With roles and chat templates, tokens around texts, and what is reserved, claimed and padded."""
    how = {"vocab_size": 297, "special_tokens": [*SPECIALS, "<|tool|>"], "num_reserved": 3, **HOW[pattern]}
    tok = tokenizer.train(TRAINING_TEXTS, split_pattern=pattern, **how).with_roles(**ROLES)
    tok = tok.rename({"<|reserved_0|>": "<|claimed|>"}).pad_to_multiple_of(128)
    if name not in BYTE_FORMATS:
        if pattern != "qwen2":
            return  # these hold tokenizers of their own, and neither templates nor reserved tokens
        tok = fit_for(name, tok)
        tok = tok.with_roles(pad=None, mask=[*tok.special_tokens][-1])
    for called, template in CHATS.items():
        tok = tok.with_chat_template(template, called)
    written = tok.save(tmp_path / "a" / "b", name)
    assert sorted(written) == sorted((tmp_path / "a" / "b").iterdir())
    back = tokenizer.load(tmp_path / "a" / "b")
    text = "Größe 12345 the foxes' ＴＨＥＲＥ\r\n  今天" + next(iter(tok.special_tokens))
    ids = tok.encode(text, allowed_special="all")
    assert back.encode(text, allowed_special="all") == ids
    assert (back.chat_templates, back.roles.get("pad")) == (CHATS, tok.roles.get("pad"))
    if name not in BYTE_FORMATS:
        assert back.roles["mask"] == tok.roles["mask"]
        return
    assert back.roles == tok.roles
    if not name.startswith("huggingface"):  # which keeps the chain of splits and not our words for it
        assert back == tok
        return
    near = {SPLIT_PATTERNS["cl100k"]: SPLIT_PATTERNS["llama3"]} if name == "huggingface" else {}
    assert back.splitter.chain == tuple(near.get(part, part) for part in tok.splitter.chain)
    assert (back.vocab, back.special_tokens, back.merges) == (tok.vocab, tok.special_tokens, tok.merges)
    assert back.definition.vocabulary.reserved == tok.definition.vocabulary.reserved
    assert back.definition.normalizer == tok.definition.normalizer
    assert back.definition.post_processor == tok.definition.post_processor
    theirs = tokenizers.Tokenizer.from_file(str(written[0]))
    assert theirs.encode(text, add_special_tokens=False).ids == ids
    assert theirs.get_vocab_size() == tok.vocab_size


def test_files_are_the_same_for_equal_tokenizers(small, tmp_path):
    for name in WRITERS:
        tok = fit_for(name, small)
        first = tok.save(tmp_path / "1", name)
        second = Tokenizer.from_spec(json.loads(json.dumps(tok.spec()))).save(tmp_path / "2", name)
        assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def published_gpt2(folder: Path) -> tuple[Path, dict[str, int]]:
    """A vocabulary laid out as GPT-2's: bytes, merges, and a special token that only `vocab.json` has."""
    vocab = {to_text(bytes([byte])): i for i, byte in enumerate(BYTE_ORDER)}
    vocab |= {"Ġt": 256, "he": 257, "Ġthe": 258, "<|endoftext|>": 259}
    (folder / "gpt2_vocab.json").write_text(json.dumps(vocab))
    (folder / "gpt2_merges.txt").write_text("#version: 0.2\nĠ t\nh e\nĠt he\n", encoding="utf-8")
    return folder / "gpt2_vocab.json", vocab


def test_gpt2_files_without_a_sidecar(tmp_path):
    path, _ = published_gpt2(tmp_path)
    for file in (path, tmp_path / "gpt2_merges.txt"):
        tok = tokenizer.load(file)
        assert dict(tok.special_tokens) == {"<|endoftext|>": 259}
        assert tok.definition.pre_tokenizer.split_pattern == "gpt2"
        assert tok.encode(" the<|endoftext|>", allowed_special="all") == [258, 259]
    assert tokenizer.load(path, split_pattern="llama3").definition.pre_tokenizer.split_pattern == "llama3"
    added = tokenizer.load(path, special_tokens={"<|endoftext|>": 259, "<|pad|>": 300})
    assert added.vocab_size == 301
    with pytest.raises(VocabularyError, match="id 299 at position 0"):
        added.decode([299])
    with pytest.raises(FormatError, match="'<x>' is not in the vocabulary"):
        tokenizer.load(path, special_tokens=["<x>"])


def test_tiktoken_files_without_a_sidecar_need_a_pattern(tmp_path):
    path = tmp_path / "own.tiktoken"
    path.write_bytes(ranks((b"ab", 256), (b"abc", 257)))
    with pytest.raises(FormatError, match="pass split_pattern"):
        tokenizer.load(path)
    with pytest.raises(FormatError, match=r"pass \{name: id\}"):
        tokenizer.load(path, split_pattern="gpt2", special_tokens=["<s>"])
    tok = tokenizer.load(path, split_pattern="gpt2", special_tokens={"<s>": 300})
    assert tok.encode("abc<s>", allowed_special="all") == [257, 300]
    assert tok.merges == [(b"a", b"b"), (b"ab", b"c")]


def test_tokens_that_merging_does_not_lead_to_are_taken_whole(tmp_path):
    path = tmp_path / "own.tiktoken"
    path.write_bytes(ranks((b"abc", 256)))
    tok = tokenizer.load(path, split_pattern="gpt2")
    assert tok.definition.model.ignore_merges
    assert tok.encode("abc abcd") == [256, 32, 97, 98, 99, 100]
    for name in ("tokmill", "huggingface", "gpt2", "tiktoken"):
        tok.save(tmp_path / name, name)
        assert tokenizer.load(tmp_path / name).encode("abc abc") == tok.encode("abc abc")


def test_exports_that_would_lose_something_are_refused(small, tmp_path):
    spec = small.spec()
    spec["merges"] = [spec["merges"][1], spec["merges"][0], *spec["merges"][2:]]
    backwards = Tokenizer.from_spec(spec)
    with pytest.raises(FormatError, match="order of tokens only"):
        backwards.save(tmp_path, "tiktoken")
    for pattern in (r"\p{L}{1,3}+|.", r"^a|b", r"\w+|\W", r"a$|b"):
        tok = tokenizer.train_from_counts({b"ab": 1}, vocab_size=257, split_pattern=pattern)
        with pytest.raises(FormatError, match="in another way"):
            tok.save(tmp_path, "huggingface")
    alike = tokenizer.train_from_counts({b" the": 1}, vocab_size=256 + 3 + 1, special_tokens=["Ġthe"])
    for name in ("huggingface", "gpt2"):
        with pytest.raises(FormatError, match="written the same"):
            alike.save(tmp_path, name)
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_fails_leaves_nothing(small, tmp_path, monkeypatch):
    small.save(tmp_path)
    before = (tmp_path / "tokmill.json").read_bytes()

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FormatError, match=r"tokmill.json: cannot be written: No space left on device"):
        small.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["tokmill.json"]
    assert (tmp_path / "tokmill.json").read_bytes() == before


def split(expression: str) -> dict[str, object]:
    """The step of a `tokenizer.json` that isolates the matches of an expression."""
    return {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False}


@pytest.mark.parametrize(
    "pattern",
    [
        *listed(r"(?s).+ (?s:.)+|a (?m).+ (?m)a. a(?i)b|c (?u)a+ (?V1)[a-z]+ (?P<x>a)|b (?|a|b) \pL+ [\pL]+"),
        *listed(r"[\w]+ [\h]+ \N|a \M-a \U00000041|b [a~~b]+ \p{IsGreek}|b \p{Script=Latin}+|b \p{LC}"),
        *listed(r"[[:punct:]] \\w [\\w]+ (?i:ab)|. (?i)ab|. (?<x>a)\|b (?>a|b)+ \p{^L}+ [a-z&&[^b]]+"),
        *listed(r"\u0041+|b (?<!a)b [^]a]+"),
    ],
)
def test_an_expression_is_refused_or_tokenizers_cuts_alike(pattern, tmp_path):
    tok = tokenizer.train_from_counts({b"a": 1}, vocab_size=2, family="word_level", split_pattern=pattern)
    text = "Ab\ncd ab b\n\nAB 12 \\w . É pL Ω\u200c \r\n x#y~~a-b C-a Ⓐ ʕ (?|ac"
    try:
        tok.save(tmp_path, "huggingface")
    except FormatError:
        return
    other = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert other.pre_tokenizer is not None
    cut = [piece for piece, _ in other.pre_tokenizer.pre_tokenize_str(text)]
    assert cut == list(tok.splitter.split_text(text))


def test_ways_in_which_published_files_say_the_same(small, tmp_path):
    file, _ = small.save(tmp_path, "huggingface")
    content = json.loads(file.read_bytes())
    text = "the foxes' 1234 there<|end|>"
    old_merges = [" ".join(pair) for pair in content["model"]["merges"]]
    split = {
        "type": "Split",
        "pattern": {"Regex": SPLIT_PATTERNS["gpt2"]},
        "behavior": "Removed",
        "invert": True,
    }
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    for changes in (
        {"model.merges": old_merges},
        {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}},
        {"pre_tokenizer.pretokenizers": [split, byte_level]},
        {"decoder": byte_level},
        {"decoder": {"type": "Sequence", "decoders": [byte_level, {"type": "Fuse"}]}},
    ):
        files.write_json(file, edited(content, changes))
        back = tokenizer.load(file)
        other = tokenizers.Tokenizer.from_file(str(file))
        assert back.encode(text, allowed_special="all") == small.encode(text, allowed_special="all")
        assert other.encode(text).ids == small.encode(text, allowed_special="all")
        assert back.decode(other.encode(text).ids) == text
    digits = {"type": "Digits", "individual_digits": True}
    files.write_json(file, edited(content, {"pre_tokenizer.pretokenizers": [digits, split, byte_level]}))
    ids = tokenizer.load(file).encode("x1234 ½ ٣٤")
    assert tokenizers.Tokenizer.from_file(str(file)).encode("x1234 ½ ٣٤").ids == ids


def test_merges_files_say_which_line_is_broken(tmp_path):
    path, _ = published_gpt2(tmp_path)
    for line, says in (("abc", "line 2: 'abc'"), ("a b c", "one space"), ("語 a", "line 2")):
        (tmp_path / "gpt2_merges.txt").write_text(f"#version: 0.2\n{line}\n", encoding="utf-8")
        with pytest.raises(FormatError, match=says):
            tokenizer.load(path)


def test_folders_and_arguments_that_say_nothing_or_too_much(small, tmp_path):
    with pytest.raises(FormatError, match="pass the tokenizer's file"):
        tokenizer.load(tmp_path)
    (file,) = small.save(tmp_path)
    with pytest.raises(FormatError, match="pass the path alone"):
        tokenizer.load(tmp_path, split_pattern="gpt2")
    with pytest.raises(FormatError, match="saved into a folder"):
        small.save(file)


def test_a_spec_keeps_its_meaning_when_a_name_changes_its_own(small):
    spec = small.spec() | {"split_pattern": "a_name_of_the_future"}
    assert Tokenizer.from_spec(spec).splitter.chain == small.splitter.chain
    spec = small.spec() | {"split_chain": [r"\S+|\s+"]}
    assert Tokenizer.from_spec(spec).splitter.chain == (r"\S+|\s+",)


def test_merges_are_read_whatever_the_order_of_their_tokens(tmp_path):
    merges = [(b"c", b"d"), (b"a", b"b")]
    tokens = {token: bytes([byte]) for token, byte in enumerate(BYTE_ORDER)} | {257: b"ab", 258: b"cd"}
    tok = Tokenizer.from_vocab(tokens, merges, split_pattern="gpt2")
    for name in ("tokmill", "huggingface", "gpt2"):
        back = tokenizer.load(tok.save(tmp_path / name, name)[0].parent)
        assert (back.merges, back.encode("abcd")) == (merges, [257, 258])
    for pair in ([256, 257], [-1, 0], [0, 999]):  # no token, and no ids
        with pytest.raises(TokenizerError):
            Tokenizer.from_spec(tok.spec() | {"merges": [pair, [66, 67]]})


def test_cl100k_is_spelled_as_it_is_published_and_exactly_where_asked(tmp_path):
    tok = tokenizer.train(TRAINING_TEXTS, vocab_size=330, split_pattern="cl100k")
    near = tokenizer.load(tok.save(tmp_path / "near", "huggingface")[0])
    assert near.definition.pre_tokenizer.split_pattern == "llama3"
    exact = tok.save(tmp_path / "exact", "huggingface_exact")[0]
    assert tokenizer.load(exact).definition.pre_tokenizer.split_pattern == "cl100k"
    for text, alike in [
        ("the fox\n\n  \n  ", False),
        ("the\n   ", False),
        ("fox!\n  ", True),
        ("the fox\n\n  \n  then", True),
        ("the fox\n\n", True),
        ("the fox  ", True),
    ]:
        assert (near.splitter.split_text(text) == tok.splitter.split_text(text)) == alike, text
        assert tokenizers.Tokenizer.from_file(str(exact)).encode(text).ids == tok.encode(text)


def test_ids_without_a_token_are_filled_with_what_no_text_becomes(tmp_path):
    path = tmp_path / "own.tiktoken"
    path.write_bytes(ranks((b"ab", 260)))
    tok = tokenizer.load(path, split_pattern="gpt2", special_tokens={"<s>": 262})
    assert (tok.vocab_size, tok.encode("ab<s>", allowed_special="all")) == (263, [260, 262])
    assert tok.encode_batch(["ab"]).ids.dtype == np.uint16
    file, _ = tok.save(tmp_path / "hf", "huggingface")
    vocab = json.loads(file.read_bytes())["model"]["vocab"]
    assert sorted(vocab.values()) == list(range(263))
    other = tokenizers.Tokenizer.from_file(str(file))
    assert other.encode("ab<s>").ids == [260, 262]
    assert other.encode("<unused 257>").ids == tok.encode("<unused 257>")
    assert tokenizer.load(file).vocab == tok.vocab


@pytest.mark.parametrize("name", ["tokenizer.model", "ranks.txt", "ranks", "own.tiktoken"])
def test_ranks_are_known_by_their_first_line(tmp_path, name):
    (tmp_path / name).write_bytes(ranks((b"ab", 256)))
    tok = tokenizer.load(tmp_path / name, split_pattern="gpt2")
    assert tok.encode("ab") == [256]
    if name == "tokenizer.model":  # as Llama 3 publishes it
        assert tokenizer.load(tmp_path, split_pattern="gpt2") == tok


def test_an_empty_token_is_a_hole(tmp_path):
    """As in Whisper's multilingual file, whose last line is `= 50256`."""
    (tmp_path / "own.tiktoken").write_bytes(ranks((b"ab", 256)) + b"= 257\n")
    tok = tokenizer.load(tmp_path, split_pattern="gpt2", special_tokens={"<|endoftext|>": 258})
    assert tok.encode("ab<|endoftext|>", allowed_special="all") == [256, 258]
    with pytest.raises(TokenizerError, match="257"):
        tok.decode([257])


def test_a_vocabulary_may_hold_any_words(tmp_path):
    """One that was trained on code has tokens "config" and "vocab", and is no tekken.json for that."""
    words = ["config", "vocab"]
    tok = tokenizer.train(words * 20, family="byte_bpe", vocab_size=265, split_pattern="gpt2")
    assert {word.encode() for word in words} <= set(tok.vocab)

    tok.save(tmp_path / "gpt2", format="gpt2")

    assert tokenizer.load(tmp_path / "gpt2").vocab == tok.vocab
