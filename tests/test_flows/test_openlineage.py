"""Events of OpenLineage: in order, complete, as the schemas say, and never a reason for a run to fail."""

import json
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from tests.test_flows.commands import Tokmill, clean_environment
from tests.test_flows.corpora import write_project
from tests.test_flows.in_process import Noting
from tests.test_flows.published_events import SCHEMAS, check_event, schema_errors
from tests.test_flows.receiver import Receiver, receiving
from tests.test_flows.test_direct import of_one, run_states
from tokmill.flows.errors import ProfileError, RunError
from tokmill.flows.library import api
from tokmill.flows.profile import load_profile
from tokmill.flows.run.direct import run_directly
from tokmill.flows.run.events import RunState
from tokmill.flows.run.machine import Machine
from tokmill.flows.tracking.attempt import Outbox
from tokmill.flows.tracking.datasets import named
from tokmill.tasks.core.stage import Outcome, Params

Events = Sequence[dict[str, Any]]
ENDS = {"COMPLETE", "FAIL", "ABORT"}


def read(path: Path) -> list[dict[str, Any]]:
    """Read a file of events, and check each against its schema."""
    events = [json.loads(line) for line in path.read_bytes().splitlines()]
    for event in events:
        check_event(event)
        assert not SCHEMAS or schema_errors(event, Path(SCHEMAS)) == []
    return events


def check_order(events: Events) -> None:
    """Check what holds for the events of one attempt."""
    first, last = events[0], events[-1]
    assert (first["eventType"], first["run"]["runId"]) == ("START", last["run"]["runId"])
    assert last["eventType"] in ENDS
    of_run = defaultdict[str, list[str]](list)
    ended = set[str]()
    for event in events:
        of_run[event["run"]["runId"]].append(event["eventType"])
        made_here = {out["name"] for each in events for out in each["outputs"]}
        if event["eventType"] == "START":
            needed = {given["name"] for given in event["inputs"]} & made_here
            assert needed <= ended, "a task starts after the ends of what it depends on"
        elif event["eventType"] == "COMPLETE":
            ended |= {out["name"] for out in event["outputs"]}
        parent = event["run"]["facets"].get("parent")
        assert (parent is None) == (event["run"]["runId"] == first["run"]["runId"])
        assert parent is None or parent["run"]["runId"] == first["run"]["runId"]
    for types in of_run.values():
        assert types[0] == "START"
        assert len(types) == 2
        assert types[1] in ENDS


def tags(event: dict[str, Any]) -> dict[str, str]:
    """The tags of an event's run."""
    return {tag["key"]: tag["value"] for tag in event["run"]["facets"]["tags"]["tags"]}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small project."""
    folder = tmp_path_factory.mktemp("project")
    write_project(folder, num_documents=30)
    return folder


@pytest.fixture(scope="module")
def runs(project: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Events, Events]:
    """A store, the events of a run into it, and those of a second one, which finds everything."""
    folder = tmp_path_factory.mktemp("store")
    profile = load_profile(project / "tiny.toml", [f'openlineage.to="file:{folder / "events.jsonl"}"'])
    first = api.run(profile, store=folder / "store", prefect=False)
    num_events = len((folder / "events.jsonl").read_bytes().splitlines())
    again = api.run(profile, store=folder / "store")
    assert again.num_cached == len(again.rows) == len(first.rows)
    events = read(folder / "events.jsonl")
    return folder / "store", events[:num_events], events[num_events:]


def test_each_task_has_a_start_and_an_end_in_the_order_of_the_run(runs: tuple[Path, Events, Events]) -> None:
    for events in runs[1:]:
        check_order(events)
        assert {event["eventType"] for event in events} == {"START", "COMPLETE"}


@pytest.mark.skipif(not SCHEMAS, reason="needs OpenLineage's folder `spec` in TOKMILL_OPENLINEAGE_SPEC")
def test_the_schemas_themselves_refuse_what_they_should(runs: tuple[Path, Events, Events]) -> None:
    """Whether events are as the schemas say is asked of each event that these tests read."""
    start = runs[1][0]
    run = {**start["run"], "facets": {"tags": {"tags": [], "_schemaURL": start["schemaURL"]}}}
    assert schema_errors({**start, "producer": "tokmill/0.1.0"}, Path(SCHEMAS))
    assert schema_errors({**start, "eventType": "BEGUN"}, Path(SCHEMAS))
    assert schema_errors({**start, "run": run}, Path(SCHEMAS))


def test_a_cached_task_says_so_and_has_the_same_versions(runs: tuple[Path, Events, Events]) -> None:
    versions = []
    for events, how in zip(runs[1:], ("made", "cached"), strict=True):
        ends = [event for event in events if event["eventType"] == "COMPLETE"][:-1]
        assert {tags(event)["how"] for event in ends} == {how}
        versions.append(
            {
                out["name"]: out["facets"]["version"]["datasetVersion"]
                for event in ends
                for out in event["outputs"]
            }
        )
    assert versions[0] == versions[1]


def test_versions_and_figures_are_those_of_the_records(runs: tuple[Path, Events, Events]) -> None:
    store, events, _ = runs
    records = {}
    for path in store.glob("*/*/record.json"):
        record = json.loads(path.read_bytes())
        records[f"{store}/{record['kind']}/{record['name']}"] = record
    ends = [event for event in events if event["eventType"] == "COMPLETE"][:-1]
    assert len(ends) == len(records)
    for event in ends:
        (out,) = event["outputs"]
        record = records[out["name"]]
        assert out["namespace"] == "file"
        assert out["facets"]["version"]["datasetVersion"] == record["content_digest"]
        statistics = out["outputFacets"]["outputStatistics"]
        assert statistics["size"] == sum(file["size_bytes"] for file in record["files"])
        assert statistics["fileCount"] == len(record["files"])
        given = {entry["digest"] for entry in record["inputs"] if entry["kind"] or entry["origin"]}
        assert given <= {each["facets"]["version"]["datasetVersion"] for each in event["inputs"]}
    (counts,) = [e["outputs"][0] for e in ends if e["outputs"][0]["name"].endswith("/counts/tiny")]
    tables = list((store / "counts").glob("*/*.parquet"))
    rows = sum(parquet.read_metadata(table).num_rows for table in tables)
    assert counts["outputFacets"]["outputStatistics"]["rowCount"] == rows
    first = counts["facets"]["schema"]["fields"][0]
    assert (first["name"], first["type"]) == ("pretoken", "large_binary")


def test_ids_lead_back_to_the_column_of_text(runs: tuple[Path, Events, Events]) -> None:
    columns: dict[tuple[str, str], set[tuple[str, str]]] = defaultdict(set)
    for event in runs[1]:
        for out in event["outputs"]:
            lineage = out.get("facets", {}).get("columnLineage", {"fields": {}})
            for column, fields in lineage["fields"].items():
                given = {(each["name"], each["field"]) for each in fields["inputFields"]}
                columns[out["name"], column] |= given
    reached = {(f"{runs[0]}/packed/tiny", "input_ids")}
    while following := {place for each in reached for place in columns.get(each, ())} - reached:
        reached |= following
    files = {Path(name).suffix for name, field in reached if field == "text"}
    assert {".jsonl", ".txt"} <= files


def one_task(store: Path, run: Any, told: Noting, *overrides: str) -> None:
    """Run one task, with `[openlineage]` as the overrides have it."""
    profile = load_profile("smoke", overrides)
    machine = Machine.of(profile.execution, store=str(store), workers=1)
    run_directly(profile, of_one(run), machine, RunState(told))


def fails(params: Params, *, out: Path) -> Outcome:
    """Fail."""
    raise ValueError("this stage always fails")


def interrupts(params: Params, *, out: Path) -> Outcome:
    """Do as Ctrl-C does."""
    raise KeyboardInterrupt


def succeeds(params: Params, *, out: Path) -> Outcome:
    """Publish nothing of interest."""
    return Outcome(metrics={})


@pytest.mark.parametrize(
    ("run", "raised", "task", "whole"),
    [(fails, RunError, "FAIL", "FAIL"), (interrupts, KeyboardInterrupt, "ABORT", "ABORT")],
)
def test_a_task_that_fails_or_is_stopped_has_an_end_with_the_message(
    run: Any, raised: type[BaseException], task: str, whole: str, tmp_path: Path
) -> None:
    with pytest.raises(raised):
        one_task(tmp_path / "store", run, Noting(), f'openlineage.to="file:{tmp_path / "events"}"')

    events = read(tmp_path / "events")
    check_order(events)
    assert [event["eventType"] for event in events] == ["START", "START", task, whole]
    assert events[2]["job"]["name"] == "smoke.one"
    message = events[2]["run"]["facets"]["errorMessage"]["message"]
    assert message in {"this stage always fails", "KeyboardInterrupt"}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A web server."""
    with receiving() as received:
        yield received


def test_a_receiver_gets_them_with_a_key_that_is_nowhere_else(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARQUEZ", "T0P-SECRET-KEY")
    to = [f'openlineage.to="{receiver.url}"', "openlineage.api_key=env:MARQUEZ", "openlineage.namespace=team"]

    one_task(tmp_path, succeeds, Noting(), *to)

    for event in receiver.messages:
        check_event(event)
        assert event["job"]["namespace"] == "team"
    check_order(receiver.messages)
    assert {headers["Authorization"] for headers in receiver.headers} == {"Bearer T0P-SECRET-KEY"}
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"T0P-SECRET" in path.read_bytes()]


@pytest.mark.parametrize("answers", [[404], [200, 403]])
def test_a_receiver_that_takes_nothing_is_told_once_and_changes_nothing(
    answers: list[int], receiver: Receiver, tmp_path: Path
) -> None:
    receiver.answers, told = answers, Noting()

    one_task(tmp_path, succeeds, told, f'openlineage.to="{receiver.url}"')

    lost = 4 - answers.count(200)
    assert told.notes == [
        f"openlineage: {lost} of 4 messages were not taken (HTTPError); the run is not affected"
    ]
    assert run_states(tmp_path) == [("completed", "")]


def test_nobody_at_the_address_is_given_up_on(tmp_path: Path) -> None:
    told = Noting()

    one_task(tmp_path, succeeds, told, 'openlineage.to="http://127.0.0.1:9"', "openlineage.timeout=0.2")

    assert run_states(tmp_path) == [("completed", "")]
    (note,) = told.notes
    assert note.startswith("openlineage: 4 of 4 messages were not taken (")


def test_what_takes_nothing_is_not_waited_for_to_the_end() -> None:
    answered, told = threading.Event(), list[str]()
    outbox = Outbox("receiver", told.append)
    outbox.put(lambda: None)
    outbox.put(lambda: check_wait(answered))
    outbox.put(lambda: None)

    outbox.close(3600, silence=0.1)
    answered.set()

    (note,) = told
    assert note.startswith("receiver: 2 of 3 messages were not taken (it took longer than ")


def check_wait(answered: threading.Event) -> None:
    """Wait, as for a receiver that is silent."""
    assert answered.wait(600)


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ('openlineage.to="ftp://x"', "must begin with file:, http://, https://"),
        ('openlineage.to="https://me:pass@x"', "a password has no place in a profile"),
        ('openlineage.api_key="abc"', "it must say where the key is kept"),
        ('mlflow.tracking_uri="https://me:pass@x"', "a password has no place in a profile"),
    ],
)
def test_what_makes_no_sense_or_would_tell_a_secret_is_refused(override: str, problem: str) -> None:
    with pytest.raises(ProfileError, match=problem) as caught:
        load_profile("smoke", [override])

    assert "pass@" not in str(caught.value)


@pytest.mark.parametrize(
    ("location", "place"),
    [
        ("/data/store", ("file", "/data/store")),
        ("file:///data/store", ("file", "/data/store")),
        ("s3://bucket/a b/c", ("s3://bucket", "a b/c")),
        ("https://host:8080/x.jsonl", ("https://host:8080", "x.jsonl")),
    ],
)
def test_places_have_the_names_that_other_producers_give_them(location: str, place: tuple[str, str]) -> None:
    assert named(location) == place


@pytest.mark.slow
def test_who_does_not_ask_for_it_imports_nothing_of_it(tmp_path: Path) -> None:
    code = (
        "import sys; from tokmill.flows.library import api;"
        "api.run('smoke', store=sys.argv[1], prefect=False);"
        "assert not {'openlineage', 'mlflow', 'requests'} & set(sys.modules)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    subprocess.run(command, check=True, env=clean_environment())


@pytest.mark.slow
def test_who_asks_without_the_extra_is_told_how_to_get_it(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['openlineage'] = None\n"
        "from tokmill.flows.library import api\n"
        "to = ['openlineage.to=\"file:x\"']\n"
        "try:\n    api.run('smoke', overrides=to, store=sys.argv[1], prefect=False)\n"
        "except Exception as error:\n    print(error)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, check=True, env=clean_environment(), capture_output=True, text=True)
    assert "pip install 'tokmill[openlineage]'" in done.stdout


@pytest.mark.server
def test_a_run_of_prefect_has_its_id_and_its_page(on_prefect: Tokmill) -> None:
    write_project(on_prefect.folder)
    on_prefect.run("tiny.toml", "--set", 'openlineage.to="file:events.jsonl"', "--until", "balance")

    events = read(on_prefect.folder / "events.jsonl")
    check_order(events)
    assert tags(events[0])["run"] == events[0]["run"]["runId"]
