"""Files: every format comes back alike, others read them alike, and broken ones say what is wrong."""

import base64
import json
import os
from pathlib import Path

import numpy as np
import pytest
import tiktoken
import tokenizers
from hypothesis import given, settings

from tests.test_tokenizer.conftest import (
    BYTE_FORMATS,
    SPECIALS,
    TRAINING_TEXTS,
    any_text,
    fit_for,
)
from tokmill import tokenizer
from tokmill.tokenizer import FormatError, Tokenizer, TokenizerError, VocabularyError
from tokmill.tokenizer.core.text import BYTE_ORDER, to_bytes, to_text
from tokmill.tokenizer.formats import WRITERS, files
from tokmill.tokenizer.splitting import SPLIT_PATTERNS


@pytest.mark.parametrize("name", BYTE_FORMATS)
@pytest.mark.parametrize("pattern", ["gpt2", "cl100k", "o200k", "llama3", "qwen2"])
@pytest.mark.parametrize("how", [{}, {"digits": "single", "normalizer": "nfkc+lowercase"}])
def test_every_format_comes_back(name: str, pattern: str, how: dict, tmp_path: Path) -> None:
    tok = tokenizer.train(
        TRAINING_TEXTS,
        vocab_size=256 + 40 + 3 + 2,
        split_pattern=pattern,
        special_tokens=SPECIALS,
        num_reserved=2,
        **how,
    )
    written = tok.save(tmp_path / "a" / "b", name)
    back = tokenizer.load(tmp_path / "a" / "b")
    text = "Größe 12345 the foxes' ＴＨＥＲＥ<|end|>\r\n  今天"
    assert back.encode(text, allowed_special="all") == tok.encode(text, allowed_special="all")
    assert (back.vocab, back.merges) == (tok.vocab, tok.merges)
    assert back.special_tokens == tok.special_tokens
    assert sorted(written) == sorted((tmp_path / "a" / "b").iterdir())
    if not name.startswith("huggingface"):  # which keeps the chain of splits and not our words for it
        assert back == tok
    else:
        near = {SPLIT_PATTERNS["cl100k"]: SPLIT_PATTERNS["llama3"]} if name == "huggingface" else {}
        assert back.splitter.chain == tuple(near.get(part, part) for part in tok.splitter.chain)
        assert back.definition.num_reserved == 2
        assert back.definition.normalizer == tok.definition.normalizer


@pytest.fixture(scope="module", params=[*sorted({*SPLIT_PATTERNS} - {"unicode_scripts"}), "starcoder"])
def pattern(request: pytest.FixtureRequest) -> str:
    """Every pattern by name, but for scripts, whose expression Oniguruma does not know."""
    return str(request.param)


@pytest.fixture(scope="module")
def exported(
    pattern: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Tokenizer, tokenizers.Tokenizer]:
    """A tokenizer, and what the tokenizers library makes of its export."""
    folder = tmp_path_factory.mktemp("exported")
    tok = tokenizer.train(TRAINING_TEXTS, vocab_size=330, split_pattern=pattern, special_tokens=SPECIALS)
    # what is published of cl100k cuts the ends of some texts otherwise
    file = tok.save(folder, "huggingface_exact" if pattern == "cl100k" else "huggingface")[0]
    return tok, tokenizers.Tokenizer.from_file(str(file))


@settings(max_examples=60)
@given(any_text())
def test_the_tokenizers_library_encodes_an_export_alike(
    exported: tuple[Tokenizer, tokenizers.Tokenizer], text: str
) -> None:
    tok, other = exported
    # characters that are new in the Unicode version of one of the two may be cut otherwise
    text = "".join(c for c in text if c.isascii() or c.isalpha())
    ids = tok.encode(text, allowed_special="all")
    assert other.encode(text).ids == ids
    assert other.decode(ids, skip_special_tokens=False) == tok.decode(ids)
    assert other.get_vocab_size() == tok.vocab_size


@pytest.mark.parametrize("normalizer", ["nfc", "nfd", "nfkc", "nfkd", "lowercase", "nfd+strip_accents"])
def test_the_tokenizers_library_normalizes_alike(normalizer: str, tmp_path: Path) -> None:
    tok = tokenizer.train(TRAINING_TEXTS, vocab_size=300, normalizer=normalizer)
    other = tokenizers.Tokenizer.from_file(str(tok.save(tmp_path, "huggingface")[0]))
    text = "ÀÉ Å ﬁ ＡＢ ΣΊΣΥΦΟΣ İstanbul Straße e\u0301 \u1e69 각 ㎏ क़"
    assert other.encode(text).ids == tok.encode(text)


def test_tiktoken_reads_an_export_alike(tmp_path: Path) -> None:
    tok = tokenizer.train(TRAINING_TEXTS, vocab_size=330, split_pattern="cl100k", special_tokens=SPECIALS[:1])
    file, sidecar = tok.save(tmp_path, "tiktoken")
    usage = json.loads(sidecar.read_text())
    ranks = {
        base64.b64decode(a): int(b) for a, b in (line.split() for line in file.read_bytes().splitlines())
    }
    other = tiktoken.Encoding(
        "ours", pat_str=usage["pat_str"], mergeable_ranks=ranks, special_tokens=usage["special_tokens"]
    )
    for text in [*TRAINING_TEXTS, "a<|endoftext|>b"]:
        assert other.encode(text, allowed_special="all") == tok.encode(text, allowed_special="all")
    assert other.n_vocab == tok.vocab_size


def test_files_are_the_same_for_equal_tokenizers(small: Tokenizer, tmp_path: Path) -> None:
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


def test_gpt2_files_without_a_sidecar(tmp_path: Path) -> None:
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


def test_tiktoken_files_without_a_sidecar_need_a_pattern(tmp_path: Path) -> None:
    path = tmp_path / "own.tiktoken"
    tokens = [bytes([i]) for i in range(256)] + [b"ab", b"abc"]
    path.write_bytes(b"".join(base64.b64encode(t) + b" %d\n" % i for i, t in enumerate(tokens)))
    with pytest.raises(FormatError, match="pass split_pattern"):
        tokenizer.load(path)
    with pytest.raises(FormatError, match=r"pass \{name: id\}"):
        tokenizer.load(path, split_pattern="gpt2", special_tokens=["<s>"])
    tok = tokenizer.load(path, split_pattern="gpt2", special_tokens={"<s>": 300})
    assert tok.encode("abc<s>", allowed_special="all") == [257, 300]
    assert tok.merges == [(b"a", b"b"), (b"ab", b"c")]


def test_tokens_that_merging_does_not_lead_to_are_taken_whole(tmp_path: Path) -> None:
    path = tmp_path / "own.tiktoken"
    tokens = [bytes([i]) for i in range(256)] + [b"abc"]
    path.write_bytes(b"".join(base64.b64encode(t) + b" %d\n" % i for i, t in enumerate(tokens)))
    tok = tokenizer.load(path, split_pattern="gpt2")
    assert tok.definition.model.ignore_merges
    assert tok.encode("abc abcd") == [256, 32, 97, 98, 99, 100]
    for name in ("tokmill", "huggingface", "gpt2", "tiktoken"):
        tok.save(tmp_path / name, name)
        assert tokenizer.load(tmp_path / name).encode("abc abc") == tok.encode("abc abc")


def test_exports_that_would_lose_something_are_refused(small: Tokenizer, tmp_path: Path) -> None:
    backwards = Tokenizer(small.definition)
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
    for name, says in (("bert", "other families"), ("onnx", "is not known")):
        with pytest.raises(FormatError, match=says):
            small.save(tmp_path, name)
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_fails_leaves_nothing(
    small: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.save(tmp_path)
    before = (tmp_path / "tokmill.json").read_bytes()

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FormatError, match=r"tokmill.json: cannot be written: No space left on device"):
        small.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["tokmill.json"]
    assert (tmp_path / "tokmill.json").read_bytes() == before


def edited(value: dict, **changes: object) -> dict:
    """A copy of a JSON object in which dotted keys have other values."""
    value = json.loads(json.dumps(value))
    for key, new in changes.items():
        *outer, last = key.split("__")
        inner = value
        for part in outer:
            inner = inner[part]
        inner[last] = new
    return value


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
def test_broken_files_of_our_own(small: Tokenizer, tmp_path: Path, changes: dict, says: str) -> None:
    (file,) = small.save(tmp_path)
    files.write_json(file, edited(json.loads(file.read_bytes()), **changes))
    with pytest.raises(FormatError, match=says):
        tokenizer.load(tmp_path)


def split(expression: str) -> dict[str, object]:
    """The step of a `tokenizer.json` that isolates the matches of an expression."""
    return {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False}


@pytest.mark.parametrize(
    "pattern",
    [
        *(
            r"(?s).+",
            r"(?s:.)+|a",
            r"(?m).+",
            r"(?m)a.",
            r"a(?i)b|c",
            r"(?u)a+",
            r"(?V1)[a-z]+",
            r"(?P<x>a)|b",
        ),
        *(r"(?|a|b)", r"\pL+", r"[\pL]+", r"[\w]+", r"[\h]+", r"\N|a", r"\M-a", r"\U00000041|b", r"[a~~b]+"),
        *(
            r"\p{IsGreek}|b",
            r"\p{Script=Latin}+|b",
            r"\p{LC}",
            r"[[:punct:]]",
            r"\\w",
            r"[\\w]+",
            r"(?i:ab)|.",
        ),
        *(
            r"(?i)ab|.",
            r"(?<x>a)\|b",
            r"(?>a|b)+",
            r"\p{^L}+",
            r"[a-z&&[^b]]+",
            r"\u0041+|b",
            r"(?<!a)b",
            r"[^]a]+",
        ),
    ],
)
def test_an_expression_is_refused_or_tokenizers_cuts_alike(pattern: str, tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model__type": "Other"}, "only byte-level BPE"),
        ({"model__byte_fallback": True}, "model.byte_fallback=True"),
        ({"model__unk_token": "<unk>"}, "model.unk_token"),
        ({"model__merges": ["a"]}, "broken: a value is of another form"),
        ({"normalizer": {"type": "ByteLevel"}}, "normalizer.type='ByteLevel'"),
        ({"pre_tokenizer": {"type": "Whitespace"}}, "must be ByteLevel"),
        ({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True}}, "add_prefix_space=True"),
        ({"pre_tokenizer": {"type": "ByteLevel", "use_regex": False}}, "needs a Split"),
        ({"pre_tokenizer__pretokenizers": [{"type": "BertPreTokenizer"}, {"type": "ByteLevel"}]}, "BertPre"),
        ({"added_tokens": [{"id": 0, "content": "!", "single_word": True}]}, "single_word=True"),
        ({"pre_tokenizer__pretokenizers": [split(r"\p{N}{1,3}+"), {"type": "ByteLevel"}]}, "another way"),
        ({"pre_tokenizer__pretokenizers": [split(r"(?m)a.$"), {"type": "ByteLevel"}]}, "another way"),
        ({"model__vocab__zz": 70}, "have the same id 70"),
        ({"model__vocab__zz": None}, "id None"),
        ({"model": 7}, "broken: "),
    ],
)
def test_files_of_others_that_cannot_be_done(
    small: Tokenizer, tmp_path: Path, changes: dict, says: str
) -> None:
    file, _ = small.save(tmp_path, "huggingface")
    content = json.loads(file.read_bytes()) | {"normalizer": {"type": "NFKC"}}
    files.write_json(file, edited(content, **changes))
    with pytest.raises(TokenizerError, match=says):
        tokenizer.load(tmp_path)


def test_ways_in_which_published_files_say_the_same(small: Tokenizer, tmp_path: Path) -> None:
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
        {"model__merges": old_merges},
        {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}},
        {"pre_tokenizer__pretokenizers": [split, byte_level]},
    ):
        files.write_json(file, edited(content, **changes))
        back = tokenizer.load(file)
        other = tokenizers.Tokenizer.from_file(str(file))
        assert back.encode(text, allowed_special="all") == small.encode(text, allowed_special="all")
        assert other.encode(text).ids == small.encode(text, allowed_special="all")
    digits = {"type": "Digits", "individual_digits": True}
    files.write_json(file, edited(content, pre_tokenizer__pretokenizers=[digits, split, byte_level]))
    ids = tokenizer.load(file).encode("x1234 ½ ٣٤")
    assert tokenizers.Tokenizer.from_file(str(file)).encode("x1234 ½ ٣٤").ids == ids


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
    ],
)
def test_files_that_are_no_tokenizers(tmp_path: Path, name: str, content: bytes | None, says: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    usage = {"split_pattern": "gpt2"} if name.endswith(".tiktoken") else {}
    with pytest.raises(tokenizer.TokenizerError, match=says):
        tokenizer.load(path, **usage)


def test_merges_files_say_which_line_is_broken(tmp_path: Path) -> None:
    path, _ = published_gpt2(tmp_path)
    for line, says in (("abc", "line 2: 'abc'"), ("a b c", "one space"), ("語 a", "line 2")):
        (tmp_path / "gpt2_merges.txt").write_text(f"#version: 0.2\n{line}\n", encoding="utf-8")
        with pytest.raises(FormatError, match=says):
            tokenizer.load(path)


def test_folders_and_arguments_that_say_nothing_or_too_much(small: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="pass the tokenizer's file"):
        tokenizer.load(tmp_path)
    (file,) = small.save(tmp_path)
    with pytest.raises(FormatError, match="pass the path alone"):
        tokenizer.load(tmp_path, split_pattern="gpt2")
    with pytest.raises(FormatError, match="saved into a folder"):
        small.save(file)


def test_a_spec_keeps_its_meaning_when_a_name_changes_its_own(small: Tokenizer) -> None:
    spec = small.spec() | {"split_pattern": "a_name_of_the_future"}
    assert Tokenizer.from_spec(spec).splitter.chain == small.splitter.chain
    spec = small.spec() | {"split_chain": [r"\S+|\s+"]}
    assert Tokenizer.from_spec(spec).splitter.chain == (r"\S+|\s+",)


@given(any_text())
def test_the_alphabet_writes_any_bytes(text: str) -> None:
    data = text.encode()
    assert to_bytes(to_text(data)) == data
    assert not any(c.isspace() for c in to_text(data))


def test_vocabularies_with_holes_keep_their_ids(tmp_path: Path) -> None:
    path = tmp_path / "own.tiktoken"
    tokens = {i: bytes([i]) for i in range(256)} | {300: b"ab"}
    path.write_bytes(b"".join(base64.b64encode(t) + b" %d\n" % i for i, t in tokens.items()))
    tok = tokenizer.load(path, split_pattern="gpt2", special_tokens={"<s>": 400})
    assert (tok.vocab_size, tok.encode("ab<s>", allowed_special="all")) == (401, [300, 400])
    file, _ = tok.save(tmp_path / "hf", "huggingface")
    assert tokenizers.Tokenizer.from_file(str(file)).encode("ab<s>").ids == [300, 400]
    assert tok.encode_batch(["ab"]).ids.dtype == np.uint16


def test_cl100k_is_spelled_as_it_is_published_and_exactly_where_asked(tmp_path: Path) -> None:
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


def test_ids_without_a_token_are_filled_with_what_no_text_becomes(tmp_path: Path) -> None:
    path = tmp_path / "own.tiktoken"
    tokens = {i: bytes([i]) for i in range(256)} | {260: b"ab"}
    path.write_bytes(b"".join(base64.b64encode(t) + b" %d\n" % i for i, t in tokens.items()))
    tok = tokenizer.load(path, split_pattern="gpt2", special_tokens={"<s>": 262})
    file, _ = tok.save(tmp_path / "hf", "huggingface")
    vocab = json.loads(file.read_bytes())["model"]["vocab"]
    assert sorted(vocab.values()) == list(range(263))
    other = tokenizers.Tokenizer.from_file(str(file))
    assert other.encode("<unused 257>").ids == tok.encode("<unused 257>")
    assert tokenizer.load(file).vocab == tok.vocab
