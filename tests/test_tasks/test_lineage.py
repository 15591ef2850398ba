"""Lineage up and down, as data and as drawings; and what differs between two recipes."""

import shutil
import subprocess
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.test_tasks.store_stages import WRITE, WriteParams, ask, ask_joined
from tests.test_tasks.test_fingerprints import plain_values
from tokmill.tasks.core.stage import External, Request
from tokmill.tasks.store import Absent, Store, canonical_json, lineage, payload_differences


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two shards and a header, joined; the joined text joined again with the header."""
    store = Store.open(tmp_path_factory.mktemp("lineage"))
    refs = {text: store.realize(ask(f"web/{n}", text=text, seed="s")).ref for n, text in enumerate("ab")}
    refs["head"] = store.realize(ask("head", text="h", seed="s")).ref
    refs["all"] = store.realize(ask_joined("all", refs["head"], refs["a"], refs["b"])).ref
    refs["book"] = store.realize(ask_joined("book", refs["head"], refs["all"], text="-")).ref
    return store, refs


def test_up_as_a_tree(made):
    store, refs = made
    assert lineage(store, refs["book"]).to_tree().splitlines() == [
        "joined/book@v1",
        "├─ text/head@v1",
        "│  └─ s",
        "└─ joined/all@v1",
        "   ├─ text/head@v1 …",
        "   └─ text/web/* (2)",
        "      └─ s",
    ]


def test_both_ways_as_a_tree(made):
    store, refs = made
    assert lineage(store, refs["all"], "both").to_tree().splitlines() == [
        "joined/all@v1 is made from",
        "├─ text/head@v1",
        "│  └─ s",
        "└─ text/web/* (2)",
        "   └─ s",
        "joined/all@v1 is used by",
        "└─ joined/book@v1",
    ]


def test_as_graphviz(made):
    store, refs = made
    assert lineage(store, refs["all"], "up").to_graphviz().splitlines() == [
        "digraph lineage {",
        "    node [shape=box];",
        '    n0 [label="joined/all@v1"];',
        '    n1 [label="text/head@v1"];',
        '    n2 [label="text/web/* (2)"];',
        '    n3 [label="s"];',
        '    n4 [label="s"];',
        "    n1 -> n0;",
        "    n2 -> n0;",
        "    n3 -> n1;",
        "    n4 -> n2;",
        "    n0 [penwidth=3];",
        "}",
    ]


@pytest.mark.skipif(shutil.which("dot") is None, reason="needs Graphviz")
def test_graphviz_draws_any_title_as_it_is(tmp_path):
    """Paths of sources are any text; dot reads its escapes, and HTML where a label is in angle brackets."""
    titles = [r"C:\new\texts", 'a "quoted" name', "<b>bold</b>", "日本語; {a|b} -> c", r"ends in \\"[:-1]]
    store = Store.open(tmp_path)
    refs = [store.realize(ask(f"t{n}", seed=title)).ref for n, title in enumerate(titles)]
    graph = lineage(store, store.realize(ask_joined("all", *refs)).ref)
    done = subprocess.run(
        ["dot", "-Tsvg"], input=graph.to_graphviz(), capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    drawn = ElementTree.fromstring(done.stdout)
    texts = {element.text for element in drawn.iter("{http://www.w3.org/2000/svg}text")}
    assert texts == {*titles, *(f"text/t{n}@v1" for n in range(len(titles))), "joined/all@v1"}
    arrows = [one for one in drawn.iter("{http://www.w3.org/2000/svg}g") if one.get("class") == "edge"]
    assert len(arrows) == 2 * len(titles)


def test_as_data_shards_are_told_one_by_one(made):
    store, refs = made
    told = lineage(store, refs["all"]).to_json()
    assert told["root"] == refs["all"].fingerprint
    assert told["direction"] == "up"
    assert told["nodes"][0] == {
        "key": refs["all"].fingerprint,
        "title": "joined/all@v1",
        "status": "published",
        "kind": "joined",
        "name": "all",
        "label": "v1",
        "content_digest": refs["all"].content_digest,
        "role": "",
        "count": 1,
    }
    assert {
        (edge["source"], edge["role"]) for edge in told["edges"] if edge["target"] == refs["all"].fingerprint
    } == {
        (refs["head"].fingerprint, "first"),
        (refs["a"].fingerprint, "rest"),
        (refs["b"].fingerprint, "rest"),
    }
    assert canonical_json(told)


def test_the_middle_of_a_long_chain_is_reached_once(tmp_path):
    """Each text is joined from the one before it, twice: paths double with each step, nodes do not."""
    store = Store.open(tmp_path)
    ref = store.realize(ask()).ref
    for number in range(12):
        ref = store.realize(ask_joined(f"n{number}", ref, ref, text=str(number))).ref
    graph = lineage(store, ref)
    assert len(graph.nodes) == 14
    assert len(graph.to_tree().splitlines()) == 14


def test_an_input_that_is_gone_is_told_as_missing_or_replaced_by_its_equal(tmp_path):
    store = Store.open(tmp_path)
    once = store.realize(ask("once", text="aa")).ref
    joined = store.realize(ask_joined("all", once)).ref
    shutil.rmtree(store.path(once))
    missing = lineage(store, joined)
    assert missing.to_tree().splitlines() == ["joined/all@v1", "└─ text/once (missing)"]
    assert missing.nodes[once.fingerprint].status == "missing"
    twice = store.realize(ask("twice", text="a", times=2)).ref
    assert twice.content_digest == once.content_digest
    assert lineage(store, joined).to_tree().splitlines()[:2] == ["joined/all@v1", "└─ text/twice@v1"]
    assert lineage(store, twice, "down").to_tree().splitlines() == ["text/twice@v1", "└─ joined/all@v1"]


def test_many_outside_inputs_are_one_node_a_role(tmp_path):
    def read(params, *, out, files, table):
        return WRITE.run(params, out=out)

    store = Store.open(tmp_path)
    files = [External(digest=f"d{number}", value={"path": f"/raw/{number}"}) for number in range(3)]
    inputs = {"files": files, "table": External(digest="t" * 64, value={"path": '/raw/"t"'})}
    stage = type(WRITE)(verb="read", task="read", kind="text", version=1, params=WriteParams, run=read)
    ref = store.realize(Request(stage, "n", WriteParams(), inputs)).ref
    graph = lineage(store, ref)
    assert graph.to_tree().splitlines() == ["text/n@v1", "├─ 3 × files", '└─ /raw/"t"']
    assert '["/raw/#quot;t#quot;"]' in graph.to_mermaid()
    assert [entry.origin for entry in store.record(ref).inputs] == ["/raw/0", "/raw/1", "/raw/2", '/raw/"t"']


# -- differences ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "differences"),
    [
        ({"x": 1}, {"x": 1.0}, [("x", 1, 1.0)]),
        ({"x": 1}, {"x": True}, [("x", 1, True)]),
        ({"x": None}, {}, [("x", None, Absent.ABSENT)]),
        ({}, {"x": {"y": [1]}}, [("x.y[0]", Absent.ABSENT, 1)]),
        ({"x": []}, {"x": {}}, [("x", [], {})]),
        ({"x": [1, 2]}, {"x": [2]}, [("x[0]", 1, 2), ("x[1]", 2, Absent.ABSENT)]),
        ({"b": 1, "a": 2}, {"a": 3, "b": 4}, [("b", 1, 4), ("a", 2, 3)]),
        ({"x": "1"}, {"x": 1}, [("x", "1", 1)]),
        ({"x": {}}, {"x": {"y": 1}}, [("x.y", Absent.ABSENT, 1)]),
        ({"x.y": 1}, {"x": {"y": 1}}, [("x.y", 1, Absent.ABSENT), ("x.y", Absent.ABSENT, 1)]),
        ({}, {}, []),
    ],
)
def test_differences_by_hand(a, b, differences):
    assert payload_differences(a, b) == differences


payloads = st.dictionaries(st.text("ab", min_size=1, max_size=2), plain_values, max_size=3)


@given(payloads, payloads)
def test_there_is_a_difference_exactly_where_canonical_forms_differ(a, b):
    assert (payload_differences(a, b) == []) == (canonical_json(a) == canonical_json(b))
