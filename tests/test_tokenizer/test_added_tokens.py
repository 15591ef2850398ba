"""Added tokens, which are always found in a text, beside special ones: `tokenizers` is the oracle."""

import json
import tempfile
import tracemalloc
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Theirs

from tests.test_tokenizer.conftest import TRAINING_TEXTS
from tokmill import tokenizer
from tokmill.tasks.audit.tokens import describe_tokens
from tokmill.tokenizer import FormatError, SpecialTokenError, Tokenizer, attestation
from tokmill.tokenizer.components.specials import CHUNK_BYTES
from tokmill.tokenizer.sampling import sample_batch
from tokmill.tokenizer.streaming import _ROOM

ADDED = [
    *(AddedToken(text, normalized=False) for text in ("<think>", "<|end|>s", "nd|>th", "the", " fo", "é")),
    *(AddedToken(text, normalized=True) for text in ("\n\n", "    ", "Fox É", "end|> x", "the f", "x<|e")),
    AddedToken("<mask>", lstrip=True, rstrip=True, normalized=False),
]
NORMALIZERS: dict[str, Any] = {"none": None, "nfc": normalizers.NFC(), "lowercase": normalizers.Lowercase()}
MARKED = {"metaspace": "always", "metaspace_first": "first"}
PARTS = [*(token.content for token in ADDED), *"<|end|>", "<|end|>", "e\u0301", *"É a▁中", "fox"]
texts = st.lists(st.sampled_from(PARTS), max_size=12).map("".join)


def trained(name: str) -> Theirs:
    """A small tokenizer: byte-level with a normalizer, or with marks for spaces and the same normalizer."""
    if name in MARKED:
        made = Theirs(models.BPE(unk_token="<unk>", fuse_unk=True))
        made.normalizer = NORMALIZERS["lowercase"]
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=MARKED[name])
        made.decoder, letters = decoders.Metaspace(prepend_scheme=MARKED[name]), []
    else:
        made = Theirs(models.BPE())
        made.normalizer = NORMALIZERS[name]
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder, letters = decoders.ByteLevel(), pre_tokenizers.ByteLevel.alphabet()
    how = {"vocab_size": 330, "special_tokens": ["<unk>", "<|end|>"], "show_progress": False}
    made.train_from_iterator(TRAINING_TEXTS, trainers.BpeTrainer(initial_alphabet=letters, **how))
    return made


@cache
def both(name: str) -> tuple[Theirs, Tokenizer]:
    """A tokenizer of `tokenizers` with added tokens, and what we read from its file."""
    theirs = trained(name)
    theirs.add_tokens([token for token in ADDED if token.content != "é" or name in MARKED])
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tokenizer.json"
        theirs.save(str(file))
        return Theirs.from_file(str(file)), tokenizer.load(file)


@pytest.mark.parametrize("name", [*NORMALIZERS, *MARKED])
@given(text=texts, places=st.tuples(*[st.integers(0, 60)] * 2).map(sorted))
def test_ids_are_those_of_tokenizers_in_every_way_to_encode(name, text, places):
    theirs, ours = both(name)
    bounds = [0, *places, len(text) + 60]
    parts = [text[start:end] for start, end in pairwise(bounds)]
    for as_text in (False, True):
        if as_text and name in MARKED and "<|end|>" in text:
            continue  # there, what is special and encoded as text is a piece of the model still
        theirs.encode_special_tokens = as_text
        expected = theirs.encode(text, add_special_tokens=False).ids
        how: Any = {"as_text": True} if as_text else {"allowed_special": "all"}
        assert ours.encode(text, **how) == expected
        assert ours.count_tokens(text, **how) == len(expected)
        assert ours.encode_batch([text, "a", text], **how).to_lists()[::2] == [expected] * 2
        assert list(ours.encode_iterable(parts, **how)) == expected
        ids, spans = ours.encode_with_offsets(text, **how)
        assert ids == expected
        normalized = ours.normalize(text, allowed_special=() if as_text else "all")
        for token, span in zip(ids, spans, strict=True):
            if token in ours.added_tokens.values():
                assert normalized[slice(*span)] == ours.token_bytes(token).decode()
        assert ours.decode(expected) == theirs.decode(expected, skip_special_tokens=False)
    theirs.encode_special_tokens = False


@pytest.mark.parametrize("name", [*NORMALIZERS, *MARKED])
def test_files_keep_both_kinds_apart(name, tmp_path):
    theirs, ours = both(name)
    assert [*ours.special_tokens] == ["<unk>", "<|end|>"]
    assert {*ours.added_tokens} >= {"<think>", "    ", "the f"}
    assert Tokenizer.from_spec(ours.spec()) == ours
    file = ours.save(tmp_path, "huggingface")[0]
    assert tokenizer.load(file) == ours
    assert {
        token["content"]: token["special"] for token in json.loads(file.read_bytes())["added_tokens"]
    } == {token.content: token.special for token in theirs.get_added_tokens_decoder().values()}
    again = Theirs.from_file(str(file))
    for text in ("the fox É\n\n    x<mask> <think>", "<|end|>s end|> x x<|end|>"):
        ids = theirs.encode(text, add_special_tokens=False).ids
        assert again.encode(text, add_special_tokens=False).ids == ids
    attestation.check(ours, attestation.make(ours))
    with pytest.raises(FormatError, match="cannot express"):
        ours.save(tmp_path, "tiktoken")


@pytest.mark.parametrize("name", [*NORMALIZERS, *MARKED])
@given(texts=st.lists(texts, max_size=3), dropout=st.sampled_from([0.0, 0.5]))
def test_segmentations_are_drawn_around_added_tokens(name, texts, dropout):
    _, ours = both(name)
    found, whole = (
        sample_batch(ours.definition, texts, dropout=dropout),
        ours.encode_batch(texts, as_text=True),
    )
    added = {*ours.added_tokens.values()}
    for ids, expected in zip(found, whole, strict=True):
        assert ours.decode(ids) == ours.decode(expected)
        assert [i for i in ids if i in added] == [i for i in expected if i in added]
        assert dropout or ids.tolist() == expected.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("name", [*NORMALIZERS, *MARKED])
def test_text_across_chunks_and_blocks(name):
    theirs, ours = both(name)
    for size in (_ROOM, CHUNK_BYTES):
        for around in ("<think>", "\n\n", "fox é", "x<mask>"):
            text = "the lazy dog " * (size // 13) + around * 9
            places = [size - 3, size, size + 2]
            for cut in (text[size % 13 :], text[(size + 5) % 13 :]):
                expected = theirs.encode(cut, add_special_tokens=False).ids
                assert ours.encode(cut) == expected
                parts = [cut[start:end] for start, end in pairwise([0, *places, len(cut)])]
                assert list(ours.encode_iterable(parts)) == expected


def test_special_tokens_are_refused_and_added_ones_are_not():
    _, ours = both("none")
    assert ours.added_tokens["<think>"] in ours.encode("a<think>b")
    with pytest.raises(SpecialTokenError, match=r"'<\|end\|>' at byte 8"):
        ours.encode("<think> <|end|>")
    late = [AddedToken("Stop!", normalized=True, special=True), AddedToken("top", normalized=True)]
    theirs = trained("lowercase")
    theirs.add_special_tokens(late[:1])
    theirs.add_tokens(late[1:])
    with tempfile.TemporaryDirectory() as folder:
        theirs.save(f"{folder}/tokenizer.json")
        own = tokenizer.load(folder)
    for how in ({"as_text": True}, {"allowed_special": "all"}):
        theirs.encode_special_tokens = "as_text" in how
        ids = theirs.encode("a STOP! top", add_special_tokens=False).ids
        assert (
            own.encode("a STOP! top", **how) == list(own.encode_iterable(["a STO", "P! top"], **how)) == ids
        )
    for encode in (own.encode, lambda text: list(own.encode_iterable([text]))):
        with pytest.raises(SpecialTokenError, match="'Stop!' at byte 2"):
            encode("a STOP! top")


def test_a_long_added_token_costs_no_more_memory_than_its_text(tmp_path):
    theirs = trained("none")
    theirs.add_tokens([AddedToken("a" * 30_000, normalized=True), AddedToken("b" * 30_000, normalized=False)])
    theirs.save(str(tmp_path / "tokenizer.json"))
    tracemalloc.start()
    try:
        tokenizer.load(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 50 << 20  # once every end of each was kept: 900 MB
    finally:
        tracemalloc.stop()


def test_the_audit_tells_the_kinds_apart():
    rows = {row["token"]: row for row in describe_tokens(both("none")[1]).to_pylist()}
    kinds = [rows[name]["kind"] for name in (b"<|end|>", b"<think>", b"the f")]
    assert kinds == ["special", "added", "added"]
    assert (rows[b"<|end|>"]["reachable"], rows[b"<think>"]["reachable"]) == (None, True)


def test_an_added_token_that_spells_other_bytes_is_refused(tmp_path):
    theirs = trained("none")
    theirs.add_tokens(["é"])  # which is how the byte 0xE9 is written
    theirs.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(FormatError, match=r"'é': id=.*spells the token b'\\xe9'"):
        tokenizer.load(tmp_path)


@pytest.mark.shared_data
@pytest.mark.parametrize(
    "case",
    ["bl_added_norm_lower", "bl_added_norm_nfc", "bl_added_ns", "qwenlike", "special_norm_lower", "ws_added"],
)
def test_files_of_the_shared_cases(case, shared_data):
    folder = shared_data / "cases" / "tokenizer_json" / case
    ours = tokenizer.load(folder / "tokenizer.json")
    for row in json.loads((folder / "expected.json").read_bytes())["rows"]:
        assert ours.encode(row["text"], allowed_special="all") == row["ids"]
        assert ours.decode(row["ids"]) == row["decoded"]
