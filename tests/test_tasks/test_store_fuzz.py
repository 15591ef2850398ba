"""Random damage to a store's records, labels, aliases and runs, for as long as one likes.

`TOKMILL_FUZZ_SECONDS=900 python -m pytest -n0 tests/test_tasks/test_store_fuzz.py` goes on for 15 minutes.
Every round has a seed of its own, which a failure names: `TOKMILL_FUZZ_SEED=…` begins with that round.
Whatever the damage, questions are answered for everything else, what is published next is there, and only the
store's own errors come out.
"""

import json
import os
import random
import shutil
import time
from contextlib import suppress
from pathlib import Path

from tests.effort import fuzz_seconds
from tests.test_tasks.store_stages import ask, ask_joined
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.store import Store, digest_bytes, lineage
from tokmill.tasks.store.catalog import Catalog

SECONDS = fuzz_seconds(2)
FIRST_SEED = int(os.environ.get("TOKMILL_FUZZ_SEED", "0"))

ATOMS = [
    *(None, True, False, "", "v1", "..", "../x", "/etc/passwd", "a" * 5000, "\0", "\u2028", "0" * 64, "text"),
    *(0, 1, -1, 2**31, 2**53, 2**63, 2**64, 10**20, 10**400, 1e308, -0.0, 5e-324),
    *(
        float("nan"),
        float("inf"),
        [],
        {},
        [[]],
        {"": ""},
        "yesterday",
        "2026-02-30T00:00:00Z",
        "catalog/x.parquet",
    ),
]
TEXTS = [
    *(b"", b"null", b"[", b"\xff", b"NaN", b"1" * 5000, b"{}" * 100, b"[" * 9999, b"\0" * 64),
    b'{"fingerprint": "\\ud800"}',
]


def original(folder):
    """A store with artifacts of artifacts, an alias and runs."""
    store = Store.open(folder)
    one, two = (store.realize(ask(f"web/{text}", text=text)).ref for text in "ab")
    store.realize(ask_joined("all", one, two))
    store.realize(ask("kept", text="kept"))
    store.tag(one, "prod")
    store.catalog.add_run("r")
    return store


def places_in(value):
    """Every list and object of a JSON document with each of its keys, but for the digest of the whole."""
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from places_in(value[key])


def mutated_json(dice, data):
    """A record or run with some values exchanged; with a digest of itself that fits, most of the time."""
    document = json.loads(data)
    seal = document.pop("record_digest", None)
    for _ in range(dice.choice([1, 1, 2, 5])):
        places = list(places_in(document))
        if not places:
            break
        holder, key = dice.choice(places)
        action = dice.randrange(4)
        if action == 0:
            del holder[key]
        elif action == 1:
            other, another = dice.choice(places)
            holder[key] = json.loads(json.dumps(other[another])) if another in list_keys(other) else None
        elif action == 2:
            value = dice.choice(ATOMS)
            for _ in range(dice.choice([0, 0, 0, 3, 300])):
                value = [value]
            holder[key] = value
        else:
            holder[key] = dice.choice(ATOMS)
    body = (json.dumps(document, indent=1) + "\n").encode()
    if seal is None or dice.random() < 0.1 or not body.startswith(b"{\n"):
        return body
    return b'{\n "record_digest": "%s",\n' % digest_bytes(body).encode() + body.removeprefix(b"{\n")


def list_keys(holder):
    return list(holder) if isinstance(holder, dict) else range(len(holder))


def mutated_bytes(dice, data):
    """Some bytes turned, cut off or repeated."""
    changed = bytearray(data or b"\0")
    for _ in range(dice.choice([1, 1, 8])):
        changed[dice.randrange(len(changed))] = dice.randrange(256)
    if dice.random() < 0.3:
        del changed[dice.randrange(len(changed)) :]
    return bytes(changed) * dice.choice([1, 1, 1, 2])


def damage(dice, path):
    """Do something to a file of the store."""
    data = path.read_bytes()
    path.unlink()
    kind = dice.randrange(10)
    if kind < 6 and path.suffix == ".json":
        path.write_bytes(mutated_json(dice, data))
    elif kind < 8:
        path.write_bytes(mutated_bytes(dice, data))
    elif kind == 8:
        path.write_bytes(dice.choice(TEXTS))
    else:
        dice.choice([os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")])(path)


def victims(store):
    """The files that the store believes something of, but for what is kept to compare with."""
    kept = store.path(store.resolve("text/kept")) / "record.json"
    records = set(store.root.glob("*/*/record.json")) - {kept}
    names = {path for path in store.root.rglob("@*") if path.parent.name != "kept"}
    return sorted({*records, *names, *store.root.glob("runs/*.json")})


def check(store, seed):
    """Do with a damaged store what people do; only its own errors may come out."""
    told = []
    store.catalog = Catalog(store.layout, report=told.append)
    before = {row["name"] for row in store.list()}
    assert "kept" in before, seed
    store.catalog.rebuild()
    assert {row["name"] for row in store.list()} >= before, seed  # labels that are gone come back
    for problem in store.verify(full=True):
        assert str(problem).isprintable() or "\n" not in str(problem), seed
    for row in store.list():
        ref = store.resolve(f"{row['kind']}/{row['name']}@{row['label']}")
        with suppress(StoreError):
            lineage(store, ref, "both")
    kept = store.realize(ask("kept", text="kept"), report=told.append)
    assert kept.cached, seed
    for text in "ab":  # what was damaged is made again, or is what it was
        ref = store.realize(ask(f"web/{text}", text=text), report=told.append).ref
        assert (store.path(ref) / "text.txt").read_text() == text, seed
    assert store.realize(ask("new", text="new"), report=told.append).ref in {store.resolve("text/new")}, seed


def rounds():
    until, seed = time.monotonic() + SECONDS, FIRST_SEED
    while seed == FIRST_SEED or time.monotonic() < until:
        yield seed
        seed += 1


def test_nothing_is_found(tmp_path):
    source = original(tmp_path / "original")
    for seed in rounds():
        dice = random.Random(seed)
        store = Store.open(shutil.copytree(source.root, tmp_path / "store"))
        chosen = victims(store)
        for path in dice.sample(chosen, dice.choice([1, 1, 2, len(chosen)])):
            damage(dice, path)
        try:
            check(store, seed)
        except Exception as error:
            error.add_note(f"TOKMILL_FUZZ_SEED={seed}")
            raise
        shutil.rmtree(store.root)
