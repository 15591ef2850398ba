"""What a person reads in Prefect's pages: names of runs, progress, links, and why something was made."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.test_tasks.store_stages import ask, ask_joined
from tokmill.flows.figures import labelled
from tokmill.flows.prefect.artifact_page import producers, sheet
from tokmill.flows.prefect.links import Links, key_of, known_before, why_made
from tokmill.flows.profile import Profile, load_profile
from tokmill.flows.profile.fields import in_words
from tokmill.flows.results import RunRow
from tokmill.flows.run.progress import Group
from tokmill.flows.run.target import name_of as named
from tokmill.tasks.core.context import StageProgress
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store import Provenance, RunArtifact, Store


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ([], []),
        (["balance.temperature=5.0"], ["temperature 5"]),
        (["mix.temperature=3.0", "mix.method=temperature"], ["mix method temperature", "mix temperature 3"]),
        (
            ["pack.sequence_length=2048", "train.vocab_size=1200"],
            ["vocab size 1,200", "sequence length 2,048"],
        ),
        (["train.vocab_size=1000"], []),  # as the profile has it
        (
            ["pack.strategy=concat", "execution.workers=1"],
            [],
        ),  # the default, and nothing that changes a result
        (["mix.weights.cjk=4.0"], ["mix weights cjk 4"]),
        (
            [f"mix.weights.{name}=9.0" for name in ("latin", "cyrillic", "cjk")] + ["train.vocab_size=900"],
            ["vocab size 900", "mix weights latin 9", "mix weights cyrillic 9", "1 more"],
        ),
    ],
)
def test_a_run_is_named_by_what_differs_from_its_profile(overrides, words):
    assert in_words(load_profile("smoke", overrides).changed, Profile) == words


def test_where_a_run_is_told_of_is_not_in_its_name():
    told = ['mlflow.tracking_uri="http://x"', 'openlineage.to="file:events.jsonl"', 'experiment.name="e"']

    assert named(load_profile("smoke", [*told, "train.vocab_size=900"])) == "smoke · vocab size 900"


def test_a_profile_that_is_whole_only_with_overrides_has_them_all_as_changes(tmp_path: Path):
    bare = tmp_path / "bare.toml"
    bare.write_text("[train]\nvocab_size = 1000\n")

    profile = load_profile(bare, [f'sources.own.files=["{tmp_path}/*.txt"]', "train.vocab_size=1000"])

    assert {change.field for change in profile.changed} == {"sources.own.files", "train.vocab_size"}


REF = ArtifactRef(kind="any", name="x", fingerprint="0" * 64, content_digest="1" * 64)


def test_the_progress_of_shards_counts_what_they_did_and_what_they_report():
    group = Group("encode[*]", 4)
    group.start("encode[a/0]", 100.0)
    group.start("encode[a/1]", 100.0)
    did = {"num_documents": 1000, "num_tokens": 250_000, "num_bytes": 8_000_000}
    group.finish(RunRow("encode[a/0]", REF, "made", 12.0, did))
    had = {"num_documents": 9, "num_tokens": 9, "num_bytes": 9}
    group.finish(RunRow("encode[a/2]", REF, "cached", 0.0, had))
    group.report("encode[a/1]", StageProgress(4_000_000, 8_000_000, "bytes", {"documents": 500}))

    assert group.share == 0.625
    assert group.words(112.0) == (
        "62 % · 12 s left · 2 of 4 shards · 1,500 documents · 250,000 tokens · 1.0 MB/s"
    )


def test_a_task_has_the_pace_of_its_own_unit():
    group = Group("train")
    group.start("train", 0.0)
    assert group.words(11.0) == "11 s so far"
    group.report("train", StageProgress(1000, 4000, "merges"))
    assert group.words(20.0) == "25 % · 1 min 00 s left · 1,000 merges · 50 merges/s"
    group.finish(RunRow("train", REF, "made", 60.0, {"num_merges": 4000}))
    assert (group.share, group.complete) == (1.0, True)
    assert group.words(60.0) == "100 % · 1 min 00 s in all"


@given(st.lists(st.sampled_from(["start", "report", "made", "cached", "fail"]), max_size=30))
def test_a_share_is_never_more_than_all(events):
    group = Group("encode[*]", max(len(events), 1))
    for index, event in enumerate(events):
        title = f"encode[a/{index}]"
        group.start(title, float(index))
        if event == "report":
            group.report(title, StageProgress(index * 3, 10, "bytes"))
        elif event == "fail":
            group.fail(title)
        elif event != "start":
            group.finish(RunRow(title, REF, event, 1.0, {}))
        assert 0 <= group.share <= 1
        assert group.words(float(index) + 1)


def test_only_runs_that_the_server_knows_are_linked():
    links = Links("/store", None)
    assert links.unknown(["one", "two", None]) == {"one", "two"}
    links.learn({"one", "two"}, {"one": "tiny [a|b]"})

    assert links.run("one") == "[tiny (a/b)](/v2/runs/flow-run/one)"
    assert links.run("two") == links.run(None) == ""
    assert links.unknown(["one", "two"]) == set()


@pytest.mark.parametrize(
    ("what", "name", "key"),
    [
        ("packed", "Own.Validation", "packed-own-validation"),
        ("progress-encode[*]", "own", "progress-encode-own"),
    ],
)
def test_keys_have_what_prefect_accepts(what, name, key):
    assert key_of(what, name) == key


@pytest.mark.parametrize(
    ("name", "value", "pair"),
    [
        ("num_documents", 1932, ("documents", "1,932")),
        ("num_bytes", 2048, ("bytes", "2.0 KiB")),
        ("num_distinct_bytes", 156, ("distinct bytes", "156")),
        ("share.cjk", 0.25, ("share of cjk", "25.00 %")),
        ("bytes_per_token", 4.3123, ("bytes per token", "4.312")),
        ("gate", "none", ("gate", "none")),
    ],
)
def test_a_metric_in_a_table_has_a_label_and_a_value_with_its_unit(name, value, pair):
    assert labelled(name, value) == pair


def test_a_sheet_has_what_a_person_asks_of_an_artifact(tmp_path: Path):
    store = Store(tmp_path / "store")
    made = Provenance.collect(flow_run_id="run-1")
    texts = [
        store.realize(ask(f"shard/{index}", text="abc", times=index + 1), made).ref for index in range(3)
    ]
    ref = store.realize(ask_joined("all", *texts), Provenance.collect(flow_run_id="run-2")).ref
    links = Links(str(store.root), None)
    links.learn({"run-1", "run-2"}, {"run-1": "first", "run-2": "second"})

    assert producers(store, store.record(ref)) == {"run-1", "run-2"}
    text = sheet(store, RunRow("all", ref, "cached", 0.0, {}), links)

    assert text.startswith("## joined/all@v1\n\n**Reused**: made on ")
    assert " by [second](/v2/runs/flow-run/run-2) in " in text
    for line in (
        "| version | `v1` |",
        f"| content digest | `{ref.content_digest[:32]}` |",
        "| size | 24 B in 1 file |",
        f"| place | `{store.path(ref)}` |",
        f"| in a terminal | `tokmill show joined/all@v1 --store {store.root}` |",
        "| parts | 3 |",
        "| first | `text/shard/0@v1` | [first](/v2/runs/flow-run/run-1) |",
        "| rest | 2 × text | [first](/v2/runs/flow-run/run-1) |",
    ):
        assert line in text.splitlines()
    assert "| web | documents | 1 |  | kept 1 |" in sheet(
        store, RunRow("one", texts[0], "made", 1.0, {}), links
    )


def test_why_something_was_made_is_what_differs_from_the_version_before(tmp_path: Path):
    store = Store(tmp_path / "store")
    first = store.realize(ask("one", text="abc")).ref
    assert why_made(store, first, known=False).text == "no artifact of that name before"
    second = store.realize(ask("one", text="abd")).ref
    assert why_made(store, second, known=False) == ("differs from v1", ["`text: abc → abd`"])
    joined = store.realize(ask_joined("all", first, first)).ref
    other = store.realize(ask_joined("all", second, second)).ref
    assert why_made(store, joined, known=True).text == "its artifact was gone or damaged"
    assert why_made(store, other, known=False).details == ["other first", "other rest"]


def test_what_an_earlier_run_had_is_known(tmp_path: Path):
    store = Store(tmp_path / "store")
    refs = [store.realize(ask(name)).ref for name in ("one", "two")]
    store.catalog.add_run("earlier", profile="own")
    row = RunArtifact(task="write", ref=refs[0], how="made")
    store.catalog.finish_run("earlier", state="completed", artifacts=[row])

    assert known_before(store, "now", refs) == {refs[0].fingerprint}
    assert known_before(store, "earlier", refs) == set()
