"""Profiles of any content: our own errors, quickly, and nothing else.

`TOKMILL_FUZZ_SECONDS=900 python -m pytest -n0 tests/test_flows/test_profile_fuzz.py` goes on for a quarter of
an hour. Every round has a seed of its own, which a failure names: `TOKMILL_FUZZ_SEED=…` begins with that one.
"""

import os
import random
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.effort import fuzz_seconds
from tokmill.flows.errors import FlowError, ProfileError
from tokmill.flows.profile import load_profile
from tokmill.flows.run.sources import resolve_sources
from tokmill.tasks.store import Store

SOUND = """\
extends = "smoke"
description = "a profile"
[sources.code]
files = ["code/**/*.py"]
format = "prose"
[balance]
temperature = 2.0
total = 1000000
[train]
vocab_size = 1000
special_tokens = ["<|endoftext|>"]
[mix]
total_tokens = 1000
min_epochs = {code = 0.5}
schedule = [[0.0, {code = 1.0, a = 2}], [0.5, {code = 2.0}]]
[mix.curriculum]
difficulty = {length = 1.0, "column:stars" = -1.0}
[pack]
sequence_length = 64
strategy = "best_fit"
fim_rate = {code = 0.5}
[tokenizer]
use = "tokenizer/base@v1"
[execution]
workers = 2
memory = "4GB"
"""
VALUES = [
    "1" * 5000, "1" + "0" * 28, "1000000000000000000", "-1", "0", "1e400", "-0.0", "nan", "inf", "1e-320",
    '""', '"~nouser/x.toml"', '"' + "x" * 300 + '.toml"', '"' + "d/" * 3000 + 'x.toml"', '"\\u0000.toml"',
    '"/dev/zero"', '"/proc/self/mem"', '"."', '"ftp://a/b"', '"{nothing}/x"', '"[a-"', '"**"', '"\\ud7ff"',
    "true", "[" * 60 + "]" * 60, "[]", "{}", "{a = {a = {a = {a = 1}}}}", "{code = -1}", '["", 1, {}]',
    "1979-05-27T07:32:00Z", "'(?:a|a)+$'", "'((((((((((a'", "'\\p{Nothing}'", "[[0.0, {}]]",
    '[[2.0, {code = 1}]]', '"100000000000000000000TB"',
]  # fmt: skip
KEYS = ("x" * 300, '"a/../b"', '"\\u0000"', "extends", "name", "ingest.shard_bytes", "mix.weights.code",
 '"ß"',
        "a." * 40 + "a")  # fmt: skip


def changed(dice: random.Random) -> str:
    """Return the sound profile with some values, keys and lines replaced, moved or broken."""
    lines = SOUND.splitlines()
    for _ in range(dice.choice([0, 1, 1, 2, 5])):
        at = dice.randrange(len(lines))
        key, equals, value = lines[at].partition(" = ")
        how = dice.randrange(7)
        if how < 3 and equals:
            lines[at] = f"{key} = {dice.choice(VALUES)}"
        elif how == 3:
            lines[at] = f"{dice.choice(KEYS)} = {value or 1}" if equals else f"[{dice.choice(KEYS)}]"
        elif how == 4:
            lines.insert(at, lines[dice.randrange(len(lines))])
        elif how == 5:
            del lines[at]
        else:
            place = dice.randrange(len(lines[at]) + 1)
            lines[at] = lines[at][:place] + dice.choice(["\0", "\r", '"', "[", "🙂", "="]) + lines[at][place:]
        lines = lines or [""]
    return "\n".join(lines)


@pytest.mark.slow
def test_any_profile(tmp_path: Path) -> None:
    path, deadline = tmp_path / "own.toml", time.monotonic() + fuzz_seconds(2)
    seed = first = int(os.environ.get("TOKMILL_FUZZ_SEED", "0"))
    while time.monotonic() < deadline or seed < first + 30:
        dice = random.Random(seed)
        path.write_text(changed(dice), encoding="utf-8", newline="")
        overrides = [f"{dice.choice(KEYS)}={dice.choice(VALUES)}"] if dice.random() < 0.3 else []
        try:
            load_profile(path, overrides)
        except FlowError:
            pass
        except Exception as error:
            error.add_note(f"TOKMILL_FUZZ_SEED={seed}")
            raise
        seed += 1


SOURCE = '[sources.s]\nfiles = ["a.txt"]\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SOURCE + "[train]\nvocab_size = " + "1" * 5000, "a number has thousands of digits"),
        (SOURCE + f"[train]\nvocab_size = {10**18}", r"train\.vocab_size=.* must be at most 2097151"),
        (SOURCE + f"[balance]\ntotal = {10**28}", "has more than 64 bits"),
        (SOURCE + "[balance]\ntotal = 0x7fffffffffffffff0", "has more than 64 bits"),
        *((SOURCE + f"[mix]\nschedule = {'[' * n}{']' * n}", "nested more than") for n in (200, 20_000)),
        (SOURCE + "[" + "a." * 200 + "a]\n", "nested more than 24 deep"),
        *((f'extends = "{path}"\n' + SOURCE, f"extends: .*{said}") for path, said in (
            ("~nouser/x.toml", "write the path in full"), (f"{'x' * 300}.toml", "File name too long"),
            (f"{'d/' * 3000}x.toml", "File name too long"), ("x" * 300, "File name too long"),
            ("/dev/zero", "no file at /dev/zero"))),
        (SOURCE + f'[tokenizer]\nuse = "{"x" * 300}"\n', "File name too long"),
        (SOURCE + '[tokenizer]\nuse = "~nouser/tokenizer"\n', "write the path in full"),
        (f"[sources.{'s' * 81}]\nfiles = ['a.txt']\n", "at most 80 characters"),
        (f"name = '{'s' * 81}'\n" + SOURCE, "at most 80 characters"),
        ("#" * (5 << 20), "larger than 4 MiB"),
    ],
    ids=lambda text: text[-24:],
)  # fmt: skip
def test_what_no_run_could_do_is_refused_when_the_profile_is_read(
    tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(ProfileError, match=said):
        load_profile(path)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.jsonl", '{"text": "x"}\n{"text": "y", "grade": 3}\n', ""),
        ("a.jsonl", '{"text": "x", "grades": 1}\n', "no document has a value in column 'grade'"),
        ("a.csv", "text,grades\nx,1\n", "column 'grade' is not among its columns"),
        ("a.txt", "x", "a.txt is read as text, which has no columns"),
    ],
)
def test_the_column_of_a_curriculum_is_looked_for_before_anything_is_made(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    (tmp_path / name).write_text(text)
    path = tmp_path / "own.toml"
    path.write_text(f'[sources.s]\nfiles = ["{name}"]\n[mix.curriculum]\ndifficulty = "column:grade"\n')
    profile, store = load_profile(path), Store.open(tmp_path / "store")
    refused = pytest.raises(ProfileError, match=f"mix.curriculum: source 's': .*{said}")
    with refused if said else nullcontext():
        assert len(resolve_sources(profile, store).files) == 1
