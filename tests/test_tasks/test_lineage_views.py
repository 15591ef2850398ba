"""The catalog's views of lineage agree with `lineage`, in every state of the catalog."""

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import EVERYTHING
from tests.test_tasks.store_stages import ask, ask_joined, give_one_number
from tokmill.tasks.store import Direction, Store, lineage
from tokmill.tasks.store.removal import remove_one
from tokmill.tasks.store.tables import VIEWS

OTHER: dict[Direction, str] = {"up": "input", "down": "user"}


def chain(store):
    """Two texts from one source, joined; joined again with the first; and a text that is used by nothing."""
    a = store.realize(ask("a", text="a", seed="s")).ref
    b = store.realize(ask("b", text="b", seed="s")).ref
    both = store.realize(ask_joined("both", a, b)).ref
    book = store.realize(ask_joined("book", both, a, text="-")).ref
    store.realize(ask("alone", text="c"))
    return a, b, both, book


def pairs(store, ref, direction):
    """What a view says of an artifact: the other artifacts; and what the command's graph says."""
    sql = f"FROM lineage_{direction} WHERE fingerprint = $f"
    rows = store.catalog.query(sql, {"f": ref.fingerprint})
    function = store.catalog.query(f"FROM lineage_{direction}($f)", {"f": ref.fingerprint})
    assert sorted(map(repr, function)) == sorted(map(repr, rows))
    key = f"{OTHER[direction]}_fingerprint"
    graph = lineage(store, ref, direction)
    drawn = {node.key for node in graph.nodes.values() if node.status != "external"} - {ref.fingerprint}
    return {row[key] for row in rows if row[key] is not None}, drawn


def test_rows_by_hand(tmp_path):
    store = Store.open(tmp_path)
    empty = [tuple(store.catalog.ask(f"FROM {name}").columns) for name in VIEWS]
    a, b, both, book = chain(store)
    assert [tuple(store.catalog.ask(f"FROM {name}").columns) for name in VIEWS] == empty == [*VIEWS.values()]

    up = store.catalog.query(
        "SELECT depth, input_fingerprint, input_kind, input_name, input_label, digest, origin "
        "FROM lineage_up WHERE artifact = 'joined/book@v1' ORDER BY depth, input_name"
    )
    assert [tuple(row.values()) for row in up] == [
        (1, a.fingerprint, "text", "a", "v1", a.content_digest, None),
        (1, both.fingerprint, "joined", "both", "v1", both.content_digest, None),
        (2, b.fingerprint, "text", "b", "v1", b.content_digest, None),
        (2, None, None, None, None, "seed:s", "s"),
    ]

    down = store.catalog.query(
        "SELECT artifact, depth, user_kind, user_name, user_label, user_fingerprint, digest "
        "FROM lineage_down WHERE artifact LIKE 'text/%' ORDER BY ALL"
    )
    assert [tuple(row.values()) for row in down] == [
        ("text/a@v1", 1, "joined", "book", "v1", book.fingerprint, book.content_digest),
        ("text/a@v1", 1, "joined", "both", "v1", both.fingerprint, both.content_digest),
        ("text/b@v1", 1, "joined", "both", "v1", both.fingerprint, both.content_digest),
        ("text/b@v1", 2, "joined", "book", "v1", book.fingerprint, book.content_digest),
    ]
    store.catalog.rebuild()
    with duckdb.connect(str(store.catalog.path), read_only=True) as opened:  # as in a notebook
        counts = [opened.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in VIEWS]
        assert counts == [len(store.catalog.query(f"FROM {name}")) for name in VIEWS]


def test_a_removed_input_stays_with_its_name(tmp_path):
    store = Store.open(tmp_path)
    a, b, _, book = chain(store)
    for ref in (a, b):
        store.layout.artifact(ref.kind, ref.fingerprint).joinpath("record.json").unlink()
    rows = store.catalog.query(
        "SELECT input_fingerprint, input_name, input_label, status FROM lineage_up WHERE fingerprint = $f "
        "AND input_kind = 'text' ORDER BY input_name",
        {"f": book.fingerprint},
    )
    assert [tuple(row.values()) for row in rows] == [
        (a.fingerprint, "a", None, "missing"),
        (b.fingerprint, "b", None, "missing"),
    ]


def test_the_way_leads_on_through_what_was_removed(tmp_path):
    """`both` is removed, but not `book`, which was made from it, as when a takedown replaced it."""
    store = Store.open(tmp_path)
    a, b, both, book = chain(store)
    wider = store.realize(ask_joined("wider", both, both, text="+")).ref
    for ref in (both, wider):
        assert remove_one(store.layout, store.record(ref), stays=lambda leases, fingerprint: False)

    up = store.catalog.query(
        "SELECT depth, input_name, input_label, origin, status FROM lineage_up "
        "WHERE artifact = 'joined/book@v1' ORDER BY depth, input_name"
    )
    assert [tuple(row.values()) for row in up] == [
        (1, "a", "v1", None, "published"),
        (1, "both", "v1", None, "removed"),
        (2, "b", "v1", None, "published"),
        (2, None, None, "s", "external"),
    ]
    down = store.catalog.query(
        "SELECT depth, user_name, status FROM lineage_down WHERE artifact = 'text/b@v1' ORDER BY ALL"
    )
    users = [(1, "both", "removed"), (2, "book", "published"), (2, "wider", "removed")]
    assert [tuple(row.values()) for row in down] == users
    for ref, direction in ((b, "down"), (book, "up"), (both, "up"), (both, "down"), (wider, "up")):
        seen, drawn = pairs(store, ref, direction)
        assert seen == drawn
    graph = lineage(store, b, "down")
    statuses = {node.name: node.status for node in graph.nodes.values()}
    assert statuses == {name: status for _, name, status in users} | {"b": "published"}
    assert graph.to_tree().splitlines() == [
        "text/b@v1",
        "└─ joined/both@v1 (removed)",
        "   ├─ joined/book@v1",
        "   └─ joined/wider@v1 (removed)",
    ]

    store.realize(ask_joined("both", a, b))  # made again, it is there, and once
    assert lineage(store, b, "down").nodes[both.fingerprint].status == "published"
    seen, drawn = pairs(store, b, "down")
    assert seen == drawn
    (number,) = store.catalog.query("SELECT count(*) AS n FROM lineage_down WHERE artifact = 'text/b@v1'")
    assert number["n"] == 3


@pytest.mark.parametrize(
    "pair",
    [
        ("alone", "a"),
        *(
            pytest.param(pair, marks=pytest.mark.slow)
            for pair in (("a", "alone"), ("b", "alone"), ("both", "alone"), ("away", "both"))
        ),
    ],
)
def test_contents_that_share_a_number_by_chance_are_told_apart(tmp_path, pair):
    """Of a million contents two may; these two have users of their own, and one of them was removed."""
    store = Store.open(tmp_path)
    a, b, both, book = chain(store)
    alone = store.realize(ask("alone", text="c")).ref
    user = store.realize(ask_joined("user", alone, text="/")).ref
    away = store.realize(ask_joined("away", user, b)).ref
    last = store.realize(ask_joined("last", away)).ref
    assert remove_one(store.layout, store.record(away), stays=lambda leases, fingerprint: False)
    refs = {ref.name: ref for ref in (a, b, both, book, alone, user, away, last)}
    asked = [ref for name, ref in refs.items() if name != pair[1]]  # whose number was changed by hand

    def told(store):
        graphs = [lineage(store, ref, direction).to_json() for ref in asked for direction in OTHER]
        return graphs, [store.catalog.query(f"FROM {view} ORDER BY ALL") for view in VIEWS]

    before = told(store)
    one, other = ((refs[name].kind, refs[name].content_digest) for name in pair)
    collided = give_one_number(store, one, other)
    assert told(collided) == before
    for ref in asked:
        for direction in OTHER:
            seen, drawn = pairs(collided, ref, direction)
            assert seen == drawn


@settings(deadline=None, max_examples=15 if EVERYTHING else 5)
@given(
    steps=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.sampled_from(["", "-"])), max_size=6)
)
@pytest.mark.slow
def test_the_views_agree_with_the_command(tmp_path_factory, steps):
    """Texts joined at random; texts `aa` and `a` twice have equal bytes, and so one set of users."""
    store = Store.open(tmp_path_factory.mktemp("store"))
    made = [store.realize(ask("once", text="aa")).ref, store.realize(ask("twice", text="a", times=2)).ref]
    assert made[0].content_digest == made[1].content_digest
    for number, (first, other, text) in enumerate(steps):
        chosen = made[first % len(made)], made[other % len(made)]
        made.append(store.realize(ask_joined(f"n{number}", *chosen, text=text)).ref)
    for ref in made:
        for direction in OTHER:
            seen, drawn = pairs(store, ref, direction)
            assert seen == drawn
