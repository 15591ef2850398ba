"""Canonical JSON and fingerprints: golden forms written by hand, what must raise, and the laws."""

import datetime
import enum
import math
import os
import sqlite3
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, RootModel, TypeAdapter, ValidationError

from tokmill.tasks.core.errors import FingerprintError, SourceError
from tokmill.tasks.core.stage import ArtifactRef, External, Params, Request, Stage
from tokmill.tasks.store import (
    NOT_IN_FINGERPRINT,
    FileDigests,
    FileEntry,
    canonical_json,
    content_digest,
    digest_bytes,
    fingerprint,
    fingerprint_payload,
)
from tokmill.tasks.store.record import Metrics


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Word(enum.StrEnum):
    ONE = "one"


class Inner(BaseModel):
    depth: int
    threads: int = Field(1, json_schema_extra=NOT_IN_FINGERPRINT)


class Recipe(Params):
    size: int = 8
    ratio: float = 1.0
    inner: Inner = Inner(depth=2)
    workers: int = Field(1, json_schema_extra=NOT_IN_FINGERPRINT)
    kind: Literal["a", "b"] = "a"


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (None, b"null"),
        (True, b"true"),
        (1, b"1"),
        (1.0, b"1.0"),
        (0.1, b"0.1"),
        (-0.0, b"-0.0"),
        (1e100, b"1e+100"),
        (10**20, b"100000000000000000000"),
        ("", b'""'),
        ('a"\\\n\x01', b'"a\\"\\\\\\n\\u0001"'),
        ("é", b'"\xc3\xa9"'),
        ("e\u0301", b'"e\xcc\x81"'),
        ("𝔘", b'"\xf0\x9d\x94\x98"'),
        ([], b"[]"),
        ((1, [2.0, None]), b"[1,[2.0,null]]"),
        ({}, b"{}"),
        ({"b": 1, "a": {"z": [], "B": True}}, b'{"a":{"B":true,"z":[]},"b":1}'),
        ({"é": 1, "z": 2}, b'{"z":2,"\xc3\xa9":1}'),
        (Colour.RED, b'"red"'),
        (Level.HIGH, b"3"),
        (Word.ONE, b'"one"'),
        ({Word.ONE: Level.HIGH}, b'{"one":3}'),
        (np.float64(0.5), b"0.5"),
        (Inner(depth=2, threads=7), b'{"depth":2}'),
        (Recipe(), b'{"inner":{"depth":2},"kind":"a","ratio":1.0,"size":8}'),
        (Open(a=1, b=2), b'{"a":1,"b":2}'),
        (RootModel[list[int]]([1, 2]), b'{"root":[1,2]}'),
    ],
)
def test_canonical_form_by_hand(value, form):
    assert canonical_json(value) == form


@pytest.mark.parametrize(
    "value",
    [
        *({1, 2}, b"raw", object(), Path("x"), datetime.date(2020, 1, 1), 1j, range(3), len),
        *(math.nan, math.inf, -math.inf, np.int64(1), np.zeros(1)),
        *({1: "a"}, {None: "a"}, {("a",): 1}, "\ud800", {"\ud800": 1}, (item for item in [1])),
    ],
)
def test_values_without_a_canonical_form_raise_and_say_where(value):
    with pytest.raises(FingerprintError, match=r"^value\.deep\[1\]\.x"):
        canonical_json({"deep": [0, {"x": value}]})


def test_a_value_that_holds_itself_raises():
    value = []
    value.append(value)
    with pytest.raises(FingerprintError, match="deeper than 64 levels"):
        canonical_json(value)


plain_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def same(a, b):
    """Equal in type and value all the way down: 1, 1.0 and True are three values, and so are 0.0 and -0.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b and math.copysign(1, a) == math.copysign(1, b) if isinstance(a, float) else a == b


@given(plain_values, plain_values)
def test_canonical_forms_are_equal_exactly_for_the_same_values(a, b):
    assert (canonical_json(a) == canonical_json(b)) == same(a, b)


def request(**changes):
    given = {
        "stage": Stage(verb="cook", task="cook", kind="meal", version=2, params=Recipe, run=lambda: None),
        "name": "dinner",
        "params": Recipe(),
        "inputs": {
            "pot": ArtifactRef(kind="pot", name="big", fingerprint="f" * 64, content_digest="c" * 64),
            "eggs": [External(digest="d1", value="here"), External(digest="d2", value="there")],
        },
    }
    return Request(**{**given, **changes})


GOLDEN_DIGEST = (
    "c2f0a3cfc28a5ea869035aa65f674f03aa5bb6551675aaf63dd5fabd33ee1c7c"  # b2sum -l 256 of the payload below
)
GOLDEN = (
    '{"inputs":{"eggs":["d1","d2"],"pot":"' + "c" * 64 + '"},'
    '"params":{"inner":{"depth":2},"kind":"a","ratio":1.0,"size":8},"stage":"cook","version":2}'
)


def test_fingerprint_is_the_digest_of_the_payload_written_by_hand():
    assert canonical_json(fingerprint_payload(request())).decode() == GOLDEN
    assert digest_bytes(GOLDEN.encode()) == GOLDEN_DIGEST
    assert fingerprint(fingerprint_payload(request())) == GOLDEN_DIGEST


def moved(ref):
    return ref.model_copy(update={"name": "small", "fingerprint": "0" * 64})


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "supper"},
        {"params": Recipe(workers=8)},
        {"params": Recipe(inner=Inner(depth=2, threads=9))},
        {"inputs": {**request().inputs, "pot": moved(request().inputs["pot"])}},
        {"inputs": {**request().inputs, "eggs": [External(digest="d1"), External(digest="d2", value=7)]}},
        {"inputs": dict(reversed(list(request().inputs.items())))},
    ],
)
def test_names_places_workers_and_order_of_roles_bear_no_identity(changes):
    assert fingerprint_payload(request(**changes)) == fingerprint_payload(request())


@pytest.mark.parametrize(
    "changes",
    [
        {"stage": Stage(verb="boil", task="cook", kind="meal", version=2, params=Recipe, run=lambda: None)},
        {"stage": Stage(verb="cook", task="cook", kind="meal", version=3, params=Recipe, run=lambda: None)},
        {"params": Recipe(ratio=2)},
        {"inputs": {**request().inputs, "eggs": list(reversed(request().inputs["eggs"]))}},
        {"inputs": {**request().inputs, "eggs": request().inputs["eggs"][0]}},
        {"inputs": {"pot": request().inputs["pot"]}},
    ],
)
def test_stage_version_parameters_and_digests_bear_identity(changes):
    assert fingerprint(fingerprint_payload(request(**changes))) != fingerprint(fingerprint_payload(request()))


@pytest.mark.parametrize("role", ["out", "params"])
def test_a_role_that_hides_a_parameter_of_the_run_function_is_refused(role):
    with pytest.raises(FingerprintError, match=f"cannot be called '{role}'"):
        fingerprint_payload(request(inputs={role: External(digest="d")}))


def test_an_input_without_a_digest_is_refused():
    with pytest.raises(FingerprintError, match=r"input eggs\[1\] has an empty digest"):
        fingerprint_payload(request(inputs={"eggs": [External(digest="d"), External(digest="")]}))


EMPTY = "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8"  # b2sum -l 256 of nothing
ABC = "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319"  # b2sum -l 256 of "abc"
LONG_AGO_NS = 1_500_000_000_000_000_000


def test_content_digest_by_hand():
    entries = [
        FileEntry(path="b", size_bytes=0, digest=EMPTY),
        FileEntry(path="a/x", size_bytes=3, digest=ABC),
    ]
    written = f'[["a/x",3,"{ABC}"],["b",0,"{EMPTY}"]]'
    assert content_digest(entries) == digest_bytes(written.encode())
    assert (
        content_digest(entries) == "afaccd9d89ae29fa1172489d1dddee8495c15bb5f3070fa0febff07f3fc4221f"
    )  # b2sum -l 256 of it
    assert content_digest([]) == digest_bytes(b"[]")


def old_file(path, data):
    path.write_bytes(data)
    os.utime(path, ns=(LONG_AGO_NS, LONG_AGO_NS))
    return path


def remembered(store):
    with sqlite3.connect(store / ".cache" / "digests.sqlite") as memory:
        found = memory.execute("SELECT digest FROM digests").fetchall()
    memory.close()
    return [digest for (digest,) in found]


def test_a_file_is_read_again_only_if_its_size_or_time_is_another(tmp_path):
    path, moved = old_file(tmp_path / "raw", b"abc"), LONG_AGO_NS + 1
    for data, moment, how, seen in (
        (b"abc", LONG_AGO_NS, {}, b"abc"),
        (b"xyz", LONG_AGO_NS, {}, b"abc"),
        (b"xyz", LONG_AGO_NS, {"rehash": True}, b"xyz"),
        (b"xyz", LONG_AGO_NS, {}, b"xyz"),
        (b"abc", moved, {}, b"abc"),
        (b"longer", moved, {}, b"longer"),
    ):
        path.write_bytes(data)
        os.utime(path, ns=(moment, moment))
        assert FileDigests(tmp_path / "store", **how).digest(path) == digest_bytes(seen)


def test_a_file_that_was_just_written_is_not_remembered(tmp_path):
    (tmp_path / "raw").write_bytes(b"abc")
    assert FileDigests(tmp_path / "store").digest(tmp_path / "raw") == ABC
    assert remembered(tmp_path / "store") == []


def test_a_missing_file_is_an_error_that_names_it(tmp_path):
    with pytest.raises(SourceError, match=r"nowhere cannot be read \(No such file"):
        FileDigests(tmp_path / "store").digest(tmp_path / "nowhere")


def test_a_broken_memory_is_started_again(tmp_path):
    path = old_file(tmp_path / "raw", b"abc")
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache" / "digests.sqlite").write_bytes(b"no database" * 1000)
    assert FileDigests(tmp_path).digest(path) == ABC
    assert remembered(tmp_path) == [ABC]


def test_a_metric_is_a_whole_number_of_64_bits_with_or_without_a_sign():
    check = TypeAdapter(Metrics).validate_python
    for value in (-1 << 63, (1 << 64) - 1):
        assert check({"n": value}) == {"n": value}
    for value in ((-1 << 63) - 1, 1 << 64):
        with pytest.raises(ValidationError, match="more than 64 bits"):
            check({"n": value})
