"""Requests become artifacts: once, whole, named, checked; and not at all when anything is wrong."""

import os
import re
import shutil

import numpy as np
import pytest

from tests.test_tasks.store_stages import WriteParams, ask, ask_joined, left_over, stage_of
from tokmill.tasks.core.errors import AccountError, PackingError, StoreError
from tokmill.tasks.core.stage import Account, Outcome, Request
from tokmill.tasks.store import Provenance, digest_bytes, read_record


def artifacts(store):
    return [path.relative_to(store.root).as_posix() for path in store.layout.artifacts()]


def test_the_record_by_hand(store):
    provenance = Provenance(git_commit="c0ffee", git_dirty=False, user="me", flow_run_id="run")
    ref = store.realize(ask("web/7", text="ab", times=2, seed="é"), provenance=provenance).ref
    record = store.record(ref)
    assert record == read_record(store.root / "text" / ref.fingerprint[:16])
    told = record.model_dump(mode="json")
    timings = told.pop("timings")
    lines = (store.path(ref) / "record.json").read_bytes().splitlines(keepends=True)
    digest = digest_bytes(b"".join(lines[:1] + lines[2:]))
    assert lines[1].decode() == f' "record_digest": "{digest}",\n'
    assert told == {
        "record_digest": digest,
        "format_version": 3,
        "kind": "text",
        "name": "web/7",
        "label": "v1",
        "fingerprint": ref.fingerprint,
        "payload": {
            "stage": "write",
            "version": 1,
            "params": {"text": "ab", "times": 2},
            "inputs": {"seed": "seed:é"},
        },
        "content_digest": ref.content_digest,
        "files": [
            {"path": "parts/first.txt", "size_bytes": 1, "digest": digest_bytes(b"a")},
            {"path": "text.txt", "size_bytes": 6, "digest": digest_bytes("éabab".encode())},
        ],
        "inputs": [
            {"role": "seed", "position": None, "digest": "seed:é", "origin": "é"}
            | dict.fromkeys(["kind", "name", "fingerprint", "about"])
        ],
        "params": {"text": "ab", "times": 2},
        "metrics": {"num_chars": 4},
        "accounts": [
            {
                "source": "web",
                "unit": "documents",
                "num_in": 2,
                "added": {"end": 1},
                "became": {"kept": 2, "end": 1},
            }
        ],
        "provenance": {
            "git_commit": "c0ffee",
            "git_dirty": False,
            "dirty_digest": None,
            "packages": {},
            "python": "",
            "platform": "",
            "user": "me",
            "command": "",
            "flow_run_id": "run",
            "deployment_id": None,
            "run_id": None,
        },
    }
    assert timings["started"] < timings["ended"]
    assert timings["ended"].endswith("Z")


def test_inputs_are_handed_over_as_paths_in_order_and_recorded(store):
    parts = [store.realize(ask(f"part/{text}", text=text)).ref for text in "abc"]
    ref = store.realize(ask_joined("all", *parts, text="-")).ref
    assert (store.path(ref) / "text.txt").read_text() == "a-b-c"
    told = [(entry.role, entry.position, entry.name, entry.digest) for entry in store.record(ref).inputs]
    assert told == [
        ("first", None, "part/a", parts[0].content_digest),
        ("rest", 0, "part/b", parts[1].content_digest),
        ("rest", 1, "part/c", parts[2].content_digest),
    ]


def test_early_cut_off_an_input_made_differently_to_the_same_bytes_is_the_same_input(store):
    once, otherwise = store.realize(ask(text="aa")).ref, store.realize(ask(text="a", times=2)).ref
    assert once.fingerprint != otherwise.fingerprint
    assert once.content_digest == otherwise.content_digest
    assert not store.realize(ask_joined("j", once)).cached
    assert store.realize(ask_joined("j", otherwise)).cached


def test_an_input_that_is_gone_or_has_changed_is_an_error(store):
    ref = store.realize(ask()).ref
    with pytest.raises(StoreError, match="ask for the artifact again"):
        store.realize(ask_joined("j", ref.model_copy(update={"content_digest": "0" * 64})))
    shutil.rmtree(store.path(ref))
    with pytest.raises(StoreError, match=r"has no record\.json"):
        store.realize(ask_joined("j", ref))
    assert artifacts(store) == left_over(store.root) == []


# -- what is refused --------------------------------------------------------------------------------------


def failing(failure):
    def run(params, *, out):
        (out / "half").write_text("half")
        return failure(out)

    return Request(stage_of(run), "broken", WriteParams(), {})


def raises(error):
    def failure(out):
        raise error

    return failure


class OutOfOrderError(Exception):
    pass


@pytest.mark.parametrize("error", [PackingError("too long"), OutOfOrderError(), KeyboardInterrupt()])
def test_what_a_stage_raises_comes_through_and_leaves_nothing(store, error):
    with pytest.raises(type(error)) as caught:
        store.realize(failing(raises(error)))
    assert caught.value is error
    assert artifacts(store) == left_over(store.root) == []
    assert store.realize(ask()).cached is False


def breaking(harm):
    def failure(out):
        harm(out)
        return Outcome({})

    return failure


SHORT = "source 's': 5 documents came in and 0 were added, but {'kept': 3} make 3; the difference is 2"


def accounts(**amounts):
    return lambda out: Outcome({}, [Account(source="s", unit="documents", **amounts)])


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (accounts(num_in=5, became={"kept": 3}), re.escape(SHORT)),
        (
            accounts(num_in=1, became={"kept": 2, "padding": -1}),
            r"padding=-1.* are below 0",
        ),
        (breaking(lambda out: os.mkfifo(out / "pipe")), "pipe is a link or special file"),
        (breaking(lambda out: (out / "link").symlink_to(out / "half")), "link is a link or special file"),
        (
            breaking(lambda out: (out / "record.json").write_text("{}")),
            r"a stage wrote record\.json; that name",
        ),
        (breaking(lambda out: (out / os.fsdecode(b"\xff")).write_text("")), "is not UTF-8"),
        (lambda out: None, "the stage returned a NoneType; it must return an Outcome"),
        (lambda out: Outcome({"n": np.int64(1)}), "metric n=.* is a int64"),
        (lambda out: Outcome({"n": None}), "metric n=None is a NoneType"),
        (
            raises(PermissionError(13, "Permission denied", "x")),
            "broken was not published: .*Permission denied",
        ),
    ],
)
def test_what_breaks_the_rules_of_the_store_is_not_published(store, failure, message):
    with pytest.raises((StoreError, AccountError), match=message):
        store.realize(failing(failure))
    assert artifacts(store) == left_over(store.root) == []
