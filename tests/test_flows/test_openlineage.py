"""Events of OpenLineage: in order, complete, as the schemas say, and never a reason for a run to fail."""

import importlib
import json
import pkgutil
import subprocess
import sys
import threading
import types
import typing
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attr
import pytest
from openlineage.client import generated
from openlineage.client.event_v2 import RunEvent
from openlineage.client.generated import base
from pyarrow import parquet

from tests.test_flows.commands import Tokmill, clean_environment
from tests.test_flows.corpora import write_project
from tests.test_flows.jobs import fail, interrupt, run_one, run_states, write
from tokmill.flows.errors import ProfileError, RunError
from tokmill.flows.library import api
from tokmill.flows.profile import load_profile
from tokmill.flows.tracking.attempt import Outbox
from tokmill.flows.tracking.lineage_events import PRODUCER, named

Events = Sequence[dict[str, Any]]
ENDS = {"COMPLETE", "FAIL", "ABORT"}
FACETS: dict[str, type] = {
    value._get_schema(): value
    for module in pkgutil.iter_modules(generated.__path__, f"{generated.__name__}.")
    for value in vars(importlib.import_module(module.name)).values()
    if isinstance(value, type) and attr.has(value) and hasattr(value, "_get_schema")
}
"""Every class of facets by the URL of its schema, from which it was generated."""


def check_object(cls: type, given: Mapping[str, Any], where: str) -> None:
    """Check an object, and what it consists of; then have its class check the rest."""
    known = {**vars(typing), **vars(base), **vars(importlib.import_module(cls.__module__))}
    hints = typing.get_type_hints(cls, known)
    fields = {field.name.strip("_"): field for field in attr.fields(cls)}
    for name, value in given.items():
        bare = name.strip("_")
        assert bare in fields, f"{where}: {name} is in no schema of {cls.__name__}"
        check_value(hints[fields[bare].name], value, f"{where}.{name}")
        if fields[bare].validator is not None:
            fields[bare].validator(None, fields[bare], value)
    required = {name for name, field in fields.items() if field.default is attr.NOTHING}
    assert required <= {name.strip("_") for name in given}, where


def check_value(hint: Any, value: Any, where: str) -> None:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in {typing.Union, types.UnionType}:
        (hint,) = [each for each in arguments if each is not type(None)]
        check_value(hint, value, where)
    elif origin is list:
        for number, each in enumerate(value):
            check_value(arguments[0], each, f"{where}[{number}]")
    elif origin is dict:
        for name, each in value.items():
            is_facet = isinstance(each, dict) and "_schemaURL" in each
            check_value(FACETS[each["_schemaURL"]] if is_facet else arguments[1], each, f"{where}.{name}")
    elif isinstance(hint, type) and issubclass(hint, Enum):
        hint(value)
    elif attr.has(hint):
        check_object(hint, value, where)
    elif hint is not Any:
        assert isinstance(value, (int, float) if hint is float else hint), f"{where}: {value!r}"


def read(path: Path) -> list[dict[str, Any]]:
    """Read a file of events, and check each."""
    return checked([json.loads(line) for line in path.read_bytes().splitlines()])


def checked(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Check events strictly against the classes that were generated from the published schemas.

    A field that no schema has, a required one that is missing, a value of another type, a facet whose
    `_schemaURL` names another schema, and what the classes themselves check (moments, UUIDs) are all errors.
    """
    for event in events:
        assert event["producer"] == PRODUCER
        assert urlsplit(PRODUCER).scheme, "the schemas ask for a URI"
        assert event["schemaURL"] == RunEvent._get_schema()
        check_object(RunEvent, {name: each for name, each in event.items() if name != "schemaURL"}, "event")
    return events


def check_order(events: Events) -> None:
    """Check what holds for the events of one attempt."""
    first, last = events[0], events[-1]
    assert (first["eventType"], first["run"]["runId"]) == ("START", last["run"]["runId"])
    of_run, ended = defaultdict[str, list[str]](list), set[str]()
    made_here = {out["name"] for each in events for out in each["outputs"]}
    for event in events:
        of_run[event["run"]["runId"]].append(event["eventType"])
        if event["eventType"] == "START":
            needed = {given["name"] for given in event["inputs"]} & made_here
            assert needed <= ended, "a task starts after the ends of what it depends on"
        elif event["eventType"] == "COMPLETE":
            ended |= {out["name"] for out in event["outputs"]}
        parent = event["run"]["facets"].get("parent")
        assert (parent is None) == (event["run"]["runId"] == first["run"]["runId"])
        assert parent is None or parent["run"]["runId"] == first["run"]["runId"]
    for kinds in of_run.values():
        assert (kinds[0], len(kinds), kinds[1] in ENDS) == ("START", 2, True)


def tags(event: dict[str, Any]) -> dict[str, str]:
    """The tags of an event's run."""
    return {tag["key"]: tag["value"] for tag in event["run"]["facets"]["tags"]["tags"]}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Events, Events]:
    """A store, the events of a run into it, and those of a second one, which finds everything."""
    folder = tmp_path_factory.mktemp("project")
    write_project(folder, num_documents=30)
    profile = load_profile(folder / "tiny.toml", [f'openlineage.to="file:{folder / "events.jsonl"}"'])
    api.run(profile, store=folder / "store", prefect=False)
    num_events = len((folder / "events.jsonl").read_bytes().splitlines())
    again = api.run(profile, store=folder / "store")
    assert again.num_cached == len(again.rows)
    events = read(folder / "events.jsonl")
    return folder / "store", events[:num_events], events[num_events:]


def test_each_task_has_a_start_and_an_end_in_order_and_a_cached_one_has_the_same_versions(
    runs: tuple[Path, Events, Events],
) -> None:
    versions = []
    for events, how in zip(runs[1:], ("made", "cached"), strict=True):
        check_order(events)
        assert {event["eventType"] for event in events} == {"START", "COMPLETE"}
        ends = [event for event in events if event["eventType"] == "COMPLETE"][:-1]
        assert {tags(event)["how"] for event in ends} == {how}
        outputs = [out for event in ends for out in event["outputs"]]
        versions.append({out["name"]: out["facets"]["version"]["datasetVersion"] for out in outputs})
    assert versions[0] == versions[1]


def test_versions_and_figures_are_those_of_the_records(runs: tuple[Path, Events, Events]) -> None:
    store, events, _ = runs
    records = [json.loads(path.read_bytes()) for path in store.glob("*/*/record.json")]
    by_name = {f"{store}/{record['kind']}/{record['name']}": record for record in records}
    ends = [event for event in events if event["eventType"] == "COMPLETE"][:-1]
    assert len(ends) == len(by_name)
    for event in ends:
        (out,) = event["outputs"]
        record, statistics = by_name[out["name"]], out["outputFacets"]["outputStatistics"]
        assert out["facets"]["version"]["datasetVersion"] == record["content_digest"]
        assert statistics["size"] == sum(file["size_bytes"] for file in record["files"])
        assert statistics["fileCount"] == len(record["files"])
        given = {entry["digest"] for entry in record["inputs"] if entry["kind"] or entry["origin"]}
        assert given <= {each["facets"]["version"]["datasetVersion"] for each in event["inputs"]}
    (counts,) = [e["outputs"][0] for e in ends if e["outputs"][0]["name"].endswith("/counts/tiny")]
    rows = sum(parquet.read_metadata(table).num_rows for table in (store / "counts").glob("*/*.parquet"))
    assert counts["outputFacets"]["outputStatistics"]["rowCount"] == rows
    first = counts["facets"]["schema"]["fields"][0]
    assert (first["name"], first["type"]) == ("pretoken", "large_binary")


def test_ids_lead_back_to_the_column_of_text(runs: tuple[Path, Events, Events]) -> None:
    columns: dict[tuple[str, str], set[tuple[str, str]]] = defaultdict(set)
    for out in (out for event in runs[1] for out in event["outputs"]):
        lineage = out.get("facets", {}).get("columnLineage", {"fields": {}})
        for column, fields in lineage["fields"].items():
            columns[out["name"], column] |= {(each["name"], each["field"]) for each in fields["inputFields"]}
    reached = {(f"{runs[0]}/packed/tiny", "input_ids")}
    while following := {place for each in reached for place in columns.get(each, ())} - reached:
        reached |= following
    assert {".jsonl", ".txt"} <= {Path(name).suffix for name, field in reached if field == "text"}


@pytest.mark.parametrize(
    ("run", "raised", "end"), [(fail, RunError, "FAIL"), (interrupt, KeyboardInterrupt, "ABORT")]
)
def test_a_task_that_fails_or_is_stopped_has_an_end_with_the_message(
    run: Any, raised: type[BaseException], end: str, tmp_path: Path
) -> None:
    with pytest.raises(raised):
        run_one(run, tmp_path / "store", f'openlineage.to="file:{tmp_path / "events"}"')
    events = read(tmp_path / "events")
    check_order(events)
    assert [event["eventType"] for event in events] == ["START", "START", end, end]
    assert events[2]["job"]["name"] == "smoke.one"
    message = events[2]["run"]["facets"]["errorMessage"]["message"]
    assert message in {"this stage always fails", "KeyboardInterrupt"}


class Receiver(BaseHTTPRequestHandler):
    """Keeps what is posted to its server, which answers with each status in turn, then with the last."""

    def do_POST(self) -> None:
        posts, statuses = self.server.posts, self.server.statuses
        posts.append((dict(self.headers), json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
        self.send_response(statuses[min(len(posts), len(statuses)) - 1])
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Any]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        server.statuses, server.posts = [200], []
        server.to = f'openlineage.to="http://127.0.0.1:{server.server_port}/hooks/T0P-SECRET-TOKEN"'
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_a_receiver_gets_them_with_a_key_that_is_nowhere_else(receiver, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("MARQUEZ", "T0P-SECRET-KEY")
    run_one(write, tmp_path, receiver.to, "openlineage.api_key=env:MARQUEZ", "openlineage.namespace=team")
    events = checked([event for _, event in receiver.posts])
    assert {event["job"]["namespace"] for event in events} == {"team"}
    check_order(events)
    assert {headers["Authorization"] for headers, _ in receiver.posts} == {"Bearer T0P-SECRET-KEY"}
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"T0P-SECRET" in path.read_bytes()]


@pytest.mark.parametrize("statuses", [[404], [200, 403], []])
def test_a_receiver_that_takes_nothing_or_is_not_there_is_told_once_and_changes_nothing(
    statuses: list[int], receiver, tmp_path: Path
) -> None:
    receiver.statuses = statuses
    nobody = ('openlineage.to="http://127.0.0.1:9"', "openlineage.timeout=0.2")
    (note,) = run_one(write, tmp_path, *([receiver.to] if statuses else nobody)).notes
    assert note.startswith(f"openlineage: {4 - statuses.count(200)} of 4 messages were not taken (")
    assert note.endswith("); the run is not affected")
    assert run_states(tmp_path) == [("completed", "")]


def test_what_takes_nothing_is_not_waited_for_to_the_end_and_places_have_the_usual_names() -> None:
    answered, told = threading.Event(), list[str]()
    outbox = Outbox("receiver", told.append)
    for message in (lambda: None, lambda: answered.wait(600), lambda: None):
        outbox.put(message)
    outbox.close(3600, silence=0.1)
    answered.set()
    (note,) = told
    assert note.startswith("receiver: 2 of 3 messages were not taken (it took longer than ")
    places = {
        "file:///data/store": ("file", "/data/store"),
        "s3://bucket/a b/c": ("s3://bucket", "a b/c"),
        "https://host:8080/x.jsonl": ("https://host:8080", "x.jsonl"),
    }
    assert {location: named(location) for location in places} == places


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


@pytest.mark.slow
def test_who_does_not_ask_imports_nothing_and_who_lacks_the_extra_is_told(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom tokmill.flows.library import api\n"
        "api.run('smoke', store=sys.argv[1], prefect=False)\n"
        "assert not {'openlineage', 'mlflow', 'requests'} & set(sys.modules)\n"
        "sys.modules['openlineage'] = None\nto = ['openlineage.to=\"file:x\"']\n"
        "try:\n    api.run('smoke', overrides=to, store=sys.argv[1], prefect=False)\n"
        "except Exception as error:\n    print(error)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, check=True, env=clean_environment(), capture_output=True, text=True)
    assert "pip install 'tokmill[openlineage]'" in done.stdout


@pytest.mark.server
def test_a_run_of_prefect_has_its_id_and_its_page(on_prefect: Tokmill) -> None:
    write_project(on_prefect.folder, num_documents=60)
    on_prefect.run("tiny.toml", "--set", 'openlineage.to="file:events.jsonl"', "--until", "balance")
    events = read(on_prefect.folder / "events.jsonl")
    check_order(events)
    assert tags(events[0])["run"] == events[0]["run"]["runId"]
