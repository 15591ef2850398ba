"""Damaged and hostile tokenizer files, in every format: our own errors or a tokenizer that works.

`TOKMILL_FUZZ_SECONDS=600 python -m pytest -n0 tests/test_tokenizer/test_fuzz_files.py` goes on for ten
minutes a format; `TOKMILL_FUZZ_SEED=…` begins with the round that a failure names."""

import copy
import json
import logging
import os
import random
import resource
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.effort import fuzz_seconds
from tests.test_tokenizer.conftest import fit_for
from tests.test_tokenizer.test_families import WORDS, trained
from tokmill import tokenizer
from tokmill.tokenizer import Tokenizer, TokenizerError
from tokmill.tokenizer.components.post_processors import Part, Template
from tokmill.tokenizer.formats import WRITERS
from tokmill.tokenizer.formats.model_file import field_of, read_fields, read_varint, write_varint
from tokmill.tokenizer.splitting import fallback

SECONDS = fuzz_seconds(2)
FIRST_SEED = int(os.environ.get("TOKMILL_FUZZ_SEED", "0"))
MOST_BYTES = 1 << 30  # that the process may grow by
MOST_CHARS = 2000  # of a message
MOST_SECONDS = 60  # of the processor, for one file
TEMPLATE = Template(
    (Part("special", "<|end|>"), Part("sequence", "A")),
    (Part("special", "<|end|>"), Part("sequence", "A"), Part("sequence", "B", 1)),
)
TEXT = "The foxes' 1234 there<|end|>\r\n  今天 aaaaaaaaaaaaaaaaaaaaaaaaaaab"
PATTERNS = [
    *["(?:a|a)+$", "(?:a*)*b", "(" * 300 + ")" * 300, "a{1000}{1000}{1000}", "(?=x)|y", r"\b", "["],
    *["x" * 20_000, r"(?<=a).", r"(\w+)\s\1|.", "(?:(?:a|ab)(?:c|bcd)(?:d*))+$|.", r"\p{Lu}\p{nothing}"],
    *["(?i:ſ)|.", "(?V1)[a--b]"],
]
VALUES: list[Any] = [
    *[None, True, False, 0, -1, 1, 255, 300, 1 << 21, 1 << 31, 1 << 63, 10**18, 10**400, 0.5, 1e308],
    *[float("nan"), "", "a", "Ġ", "\ud800", "語", "\x00", "<|reserved_999999999|>", "a b", "9" * 100],
    *["nfc+nfc", "A" * 70_000, [], {}, [[]], [None], {"a": {}}, ["a", "b", "c"], [[0, 1]]],
    *[{"type": "Sequence", "pretokenizers": []}, *({"Regex": pattern} for pattern in PATTERNS), *PATTERNS],
]
KEYS = ["x", "", "語", "format", "model", "<s>", "special_token_roles", "chat_template", "unk_token"]


def rounds() -> Iterator[int]:
    """Seeds, until the time is over; one at least."""
    until, seed = time.monotonic() + SECONDS, FIRST_SEED
    while seed == FIRST_SEED or time.monotonic() < until:
        yield seed
        seed += 1


def saved(folder: Path, tok: Tokenizer, name: str) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in tok.save(folder / name, name)}


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container of a JSON value with one of its keys."""
    found: list[tuple[Any, Any]] = []
    todo = [value]
    while todo:
        inner = todo.pop()
        if isinstance(inner, dict | list):
            keys = list(inner) if isinstance(inner, dict) else range(len(inner))
            found += [(inner, key) for key in keys]
            todo += [inner[key] for key in keys]
    return found


def any_value(dice: random.Random) -> Any:
    """A value of its own: what is put in may be changed in its turn."""
    return copy.deepcopy(dice.choice(VALUES))


def with_other_values(dice: random.Random, content: bytes) -> bytes:
    """JSON in which some values are others, some are gone, and some stand under another key."""
    value = json.loads(content)
    shallow = [
        (holder, key) for holder, key in places(value) if isinstance(holder, dict) and len(holder) < 30
    ]
    for _ in range(dice.randrange(1, 4)):
        holder, key = dice.choice(shallow if shallow and dice.random() < 0.8 else places(value))
        how = dice.randrange(8)
        if how == 0 and isinstance(holder, dict):
            holder.pop(key, None)
        elif how == 1 and isinstance(holder, dict):
            holder[dice.choice(KEYS)] = any_value(dice)
        elif how == 2 and isinstance(holder, list):
            holder.append(any_value(dice))
        else:
            holder[key if isinstance(holder, dict) else key % len(holder)] = any_value(dice)
    return json.dumps(value).encode("utf-8", "surrogatepass")


def with_other_bytes(dice: random.Random, content: bytes) -> bytes:
    """Bytes with bits flipped, cut off, cut out, doubled, or other bytes put in."""
    data = bytearray(content)
    for _ in range(dice.choice([1, 1, 3, 30])):
        at = dice.randrange(len(data) + 1)
        match dice.randrange(6):
            case 0:
                del data[at:]
            case 1:
                del data[at : at + dice.randrange(1, 200)]
            case 2:
                data[at:at] = data[at : at + dice.randrange(1, 200)]
            case 3:
                data[at:at] = dice.choice(
                    [b" 99999999999999999999\n", b"\n", b"{" * 500, b'"', b"\xff", b"\0" * 50]
                )
            case _ if data:
                data[at % len(data)] ^= 1 << dice.randrange(8)
    return bytes(data)


FLOATS = [0.0, -0.0, 1e38, -1e30, 1e-45, float("nan"), float("inf"), float("-inf")]
NUMBERS = [0, 1, 2, 3, 4, 5, 6, 127, 128, (1 << 31) - 1, 1 << 31, (1 << 64) - 1]
BYTES = [
    b"",
    b"\xff",
    b"a",
    b"\xe2\x96\x81",
    b"<0x41>",
    b"<0xZZ>",
    b"\0",
    b"\xed\xa0\x80",
    b"9" * 70_000,
    b"<s>",
]


def with_other_fields(dice: random.Random, content: bytes, depth: int = 0) -> bytes:
    """A message of protocol buffers in which some fields hold other values, are gone, doubled or renamed."""
    fields = fields_of(content)
    for _ in range(dice.choice([1, 1, 2, 5]) if depth == 0 else 1):
        at = dice.randrange(len(fields)) if fields else 0
        field = fields.pop(at) if fields else field_of(1, b"")
        inner = read_varint(field, 0, "fuzz")[1]  # behind the tag
        number, kind = divmod(read_varint(field, 0, "fuzz")[0], 8)
        match dice.randrange(10):
            case 0:
                continue
            case 1:
                fields += [field] * 2
            case 2:
                fields.insert(at, write_varint(dice.choice([1, 2, 3, 4, 5, 41]) << 3 | kind) + field[inner:])
            case 3 | 4 | 5 | 6 if kind == 2 and (value := message_in(field, inner)) is not None:
                fields.insert(at, field_of(number, with_other_fields(dice, value, depth + 1)))
            case 7:
                fields.insert(at, field_of(number, dice.choice([*NUMBERS, *BYTES, *FLOATS])))
            case _:
                like = {0: NUMBERS, 2: BYTES, 5: FLOATS}.get(kind, NUMBERS)
                fields.insert(at, field_of(number, dice.choice(like)))
    return b"".join(fields)


def fields_of(content: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(content):
        tag, end = read_varint(content, at, "fuzz")
        if tag % 8 == 0:
            end = read_varint(content, end, "fuzz")[1]
        elif tag % 8 == 2:
            size, end = read_varint(content, end, "fuzz")
            end += size
        else:
            end += {1: 8, 5: 4}[tag % 8]
        found.append(content[at:end])
        at = end
    return found


def message_in(field: bytes, at: int) -> bytes | None:
    """The bytes of a field, if they can be read as a message."""
    value = field[read_varint(field, at, "fuzz")[1] :]
    try:
        return value if [*read_fields(value, "fuzz")] else None
    except TokenizerError:
        return None


def damaged(dice: random.Random, files: dict[str, bytes]) -> dict[str, bytes]:
    name = dice.choice(sorted(files))
    if dice.random() < 0.03:
        return {other: content for other, content in files.items() if other != name}
    by_part = {".json": with_other_values, ".model": with_other_fields}.get(Path(name).suffix)
    change = by_part if by_part and dice.random() < 0.7 else with_other_bytes
    return files | {name: change(dice, files[name])}


def use(folder: Path, usage: dict[str, Any]) -> bool:
    """Load what the folder holds and use it; say whether that went well, without an error of ours."""
    try:
        tok = tokenizer.load(folder, **usage)
        tok.encode(TEXT, TEXT, allowed_special="all", add_special_tokens=True)
        ids = tok.encode(TEXT, allowed_special="all")
        assert max(ids) < tok.vocab_size
        assert tok.encode_batch([TEXT] * 3, allowed_special="all").to_lists() == [ids] * 3
        tok.decode(range(tok.vocab_size))
        if tok.family == "byte_bpe":
            assert tok.decode_bytes(ids) == tok.normalize(TEXT, allowed_special="all").encode()
        again = Tokenizer.from_spec(tok.spec())
        assert again.encode(TEXT, allowed_special="all") == ids
    except TokenizerError as error:
        if len(str(error)) > MOST_CHARS:
            raise AssertionError("a message without end") from error
        return False
    return True


def used(round_: str, folder: Path, **usage: Any) -> bool:
    """Whether a file could be used; an error that is not ours says in which round."""
    try:
        return use(folder, usage)
    except Exception as error:
        raise AssertionError(f"{round_}: {type(error).__name__}: {error!s:.500}") from error


FILES = {
    "word_bpe": ("tokmill", "huggingface", "gpt2"),
    "char_bpe": ("tokmill",),
    **dict.fromkeys(("wordpiece", "unigram", "word_level", "character_level"), ("tokmill", "huggingface")),
}


@pytest.fixture
def messages(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What is logged, kept from pytest: it would hold every line of the hundreds of thousands of rounds."""
    found: list[str] = []
    handler, logger = logging.Handler(), logging.getLogger("tokmill")
    monkeypatch.setattr(handler, "emit", lambda record: found.append(record.getMessage()))
    monkeypatch.setattr(logger, "propagate", False)
    logger.addHandler(handler)
    yield found
    logger.removeHandler(handler)


@pytest.mark.parametrize(
    ("name", "family"),
    [
        *((name, "any") for name in WRITERS),
        *((name, family) for family, names in FILES.items() for name in names),
    ],
)
def test_nothing_but_our_own_errors(small, name, family, tmp_path, monkeypatch, messages):
    monkeypatch.setattr(fallback, "SECONDS_AT_LEAST", 1.0)
    pattern = "bert" if family in WORDS else "gpt2"
    more = {"byte_fallback": True, "vocab_size": 400} if family in {"unigram", "char_bpe"} else {}
    plain = small
    if family != "any":
        plain = trained(family, split_pattern=pattern, special_tokens="<|end|>", **more)
    templated = Tokenizer(replace(plain.definition, post_processor=TEMPLATE))
    files = saved(tmp_path, fit_for(name, templated), name)
    usage = {"split_pattern": "gpt2"} if name in ("gpt2", "tiktoken") else {}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    num_rounds = num_used = 0
    for seed in rounds():
        dice = random.Random(f"{name} {seed}")
        folder = tmp_path / str(seed)
        folder.mkdir()
        for file, content in damaged(dice, files).items():
            (folder / file).write_bytes(content)
        began = time.process_time()
        try:
            num_used += use(folder, usage if dice.random() < 0.5 else {})
        except Exception as error:
            raise AssertionError(f"{name}: round {seed}: {type(error).__name__}: {error!s:.500}") from error
        assert time.process_time() - began < MOST_SECONDS, seed
        assert all(len(message) < MOST_CHARS for message in messages), seed
        messages.clear()
        shutil.rmtree(folder)
        num_rounds += 1
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < MOST_BYTES, f"{grown} bytes more than before {num_rounds} rounds"
    assert num_used < num_rounds or num_rounds < 3
