"""Longest match: equal to the slow model, trained as byte-level BPE, and RWKV's files and libraries."""

import json
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.test_tokenizer.conftest import TRAINING_TEXTS, by_kernel
from tests.test_tokenizer.gguf_files import section, write_gguf
from tokmill import tokenizer
from tokmill.tokenizer import Tokenizer, TokenizerError
from tokmill.tokenizer.core.errors import FormatError, VocabularyError
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.longest_match.family import LongestMatchModel, literal_bytes
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.reference.closed_vocabulary import longest_match

PYTHON = os.environ.get("TOKMILL_READERS", sys.executable)
BYTES = [bytes([byte]) for byte in range(256)]


def of(pieces: list[bytes]) -> Tokenizer:
    """A tokenizer of the bytes and some pieces, whose text is one pre-token."""
    vocabulary = Vocabulary.build(dict(enumerate([*BYTES, *pieces])), {})
    return Tokenizer(Definition.compose(LongestMatchModel(vocabulary), split_pattern=r"[\s\S]+"))


@given(st.lists(st.text("abc é", min_size=1, max_size=6), max_size=20), st.text("abc é", max_size=40))
def test_it_is_the_slow_model(pieces, text):
    distinct = list(dict.fromkeys(piece.encode() for piece in pieces if len(piece.encode()) > 1))
    tok = of(distinct)
    expected = longest_match(text.encode(), {*BYTES, *distinct})
    assert [tok.definition.tokens[i] for i in tok.encode(text)] == expected
    assert [tok.definition.tokens[i] for i in by_kernel(tok, text)] == expected


@pytest.mark.parametrize("tie_break", ["lexicographic_max", "lowest_ids", "first_seen"])
def test_pieces_are_those_of_byte_level_bpe(tie_break):
    how = {"vocab_size": 340, "special_tokens": ["<|end|>"], "tie_break": tie_break}
    ours = tokenizer.train(TRAINING_TEXTS, family="longest_match", **how)
    assert ours.definition.tokens == tokenizer.train(TRAINING_TEXTS, **how).definition.tokens


def test_every_byte_must_be_a_token():
    vocabulary = Vocabulary.build(dict(enumerate(BYTES[1:])), {})
    with pytest.raises(VocabularyError, match="1 of the 256 bytes are not tokens"):
        LongestMatchModel(vocabulary)


RWKV = "".join(
    [
        *(f"{byte + 1} {chr(byte) if byte < 128 else bytes([byte])!r} 1\n" for byte in range(256)),
        "257 '\\t\\t' 2\n258 \"'s\" 2\n",
        "259 ' the' 4\n260 '\\u2002' 3\n261 '\\U0001f600' 4\n",
        "262 b'\\xe5\\xa4' 2\n263 '天' 3\n264 '\\x85' 2\n",
    ]
)


def test_rwkvs_file_is_read_and_written(tmp_path):
    path = tmp_path / "rwkv_vocab_v20230424.txt"
    path.write_text(RWKV.replace("\n", "\r\n"), encoding="utf-8", newline="")  # as a package has it
    tok = tokenizer.load(path, special_tokens={"<|endoftext|>": 0})
    assert tok.encode("the the\t\t's 😀天\u2002\x85") == [
        *(117, 105, 102, 259, 257, 258, 33, 261, 263, 260, 264)
    ]
    assert tok.encode("a<|endoftext|>", allowed_special="all") == [98, 0]
    tok.save(tmp_path / "saved", "rwkv")
    assert tokenizer.load(tmp_path / "saved").spec() == tok.spec()
    again = (tmp_path / "saved" / "rwkv_vocab.txt").read_text(encoding="utf-8")
    assert again.splitlines()[:129] == RWKV.splitlines()[:129]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("300 'a", "must be an id, a literal"),
        ("300 'a' 'b' 2", "must be an id, a literal"),
        ("300 ('ab') 2", "must be an id, a literal"),
        ("300 'ab' 3", "has 2 bytes, but the line says 3"),
        ("300 '\\d' 1", r"the escape .* is not known"),
        ("300 b'\\u0041' 1", r"the escape .* is not known"),
        ("300 b'é' 1", "holds a character that is not a byte"),
        ("300 '\\ud800' 3", "stands for no text"),
        ("300 '\\U00110000' 4", "stands for no text"),
        ("257 'zz' 2", "stand there once"),
        ("9999999 'zz' 2", "must be from 0 to"),
        ("300 ' the' 4", "is a token under two ids"),
        ("300 '' 0", "no token empty"),
    ],
)
def test_lines_that_cannot_be_read(line, says, tmp_path):
    path = tmp_path / "rwkv_vocab.txt"
    path.write_text(f"{RWKV}{line}\n", encoding="utf-8")
    with pytest.raises(TokenizerError, match=says):
        tokenizer.load(path)


def test_special_tokens_must_say_their_ids(tmp_path):
    (tmp_path / "rwkv_vocab.txt").write_text(RWKV, encoding="utf-8")
    with pytest.raises(FormatError, match="must say their ids"):
        tokenizer.load(tmp_path, special_tokens=["<|endoftext|>"])


def test_gguf_has_the_same_tokens(tmp_path):
    (tmp_path / "rwkv_vocab.txt").write_text(RWKV, encoding="utf-8")
    tok = tokenizer.load(tmp_path / "rwkv_vocab.txt", special_tokens={"<s>": 0, "[PAD265]": 265})
    tokens = tokenizer.load(tmp_path / "rwkv_vocab.txt").definition.tokens
    texts = [*(repr(token)[2:-1] if token else "<s>" for token in tokens), "[PAD265]"]
    kinds = [3, *[1] * (len(tokens) - 1), 5]
    other = tokenizer.load(
        write_gguf(tmp_path / "model.gguf", section("rwkv", "default", texts, kinds, eos=0))
    )
    text = "the the\t\t's 😀天\u2002\x85"
    assert other.encode(text) == tok.encode(text)
    assert other.definition.tokens == tok.definition.tokens
    assert other.special_tokens == tok.special_tokens
    assert other.roles["eos"] == "<s>"


def test_literals_of_python_are_read():
    for token in [*BYTES, b"it's", b'"', b"'\"", b"\\n", b"\xff\n\t\r'"]:
        literal = repr(token)
        assert literal_bytes(literal[2:-1], is_bytes=True, where="here") == token


@pytest.mark.readers
@pytest.mark.shared_data
def test_rwkvs_own_vocabulary_and_library(shared_data, tmp_path):
    """The vocabulary is in the package, which is read where it is installed."""
    find = "import pyrwkv_tokenizer as r; print(r.__path__[0] + '/rwkv_vocab_v20230424.txt')"
    found = subprocess.run([PYTHON, "-c", find], capture_output=True, text=True, check=False)
    if found.returncode:
        pytest.skip(f"no pyrwkv_tokenizer in {PYTHON}; CONTRIBUTING.md says how to install it")
    tok = tokenizer.load(found.stdout.strip())
    texts = [
        line
        for path in sorted((shared_data / "ntrex").glob("*.txt"))
        for line in path.read_text(encoding="utf-8").split("\n")[:100]
    ]
    texts += ["", " ", "\n\n \n", "a" * 3000, "\x00\x85\u2028", "😀👨‍👩‍👧"]
    encode = "import sys, json, pyrwkv_tokenizer as r; t = r.RWKVTokenizer(vocab_filepath=sys.argv[1]); "
    encode += "print(json.dumps([list(t.encode(x)) for x in json.load(sys.stdin)]))"
    tok.save(tmp_path, "rwkv")
    for path in (found.stdout.strip(), str(tmp_path / "rwkv_vocab.txt")):
        command = [PYTHON, "-c", encode, path]
        done = subprocess.run(command, input=json.dumps(texts).encode(), capture_output=True, check=True)
        assert json.loads(done.stdout) == tok.encode_batch(texts).to_lists()
