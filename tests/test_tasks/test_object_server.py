"""The tests' own object server: what its faults do to a real client that does not retry."""

import threading
from typing import Any

import pytest

from tests.object_server import Bucket

boto3 = pytest.importorskip("boto3")
botocore = pytest.importorskip("botocore")
pytestmark = pytest.mark.objects


@pytest.fixture
def client(bucket: Bucket) -> Any:
    client = boto3.client("s3", config=botocore.config.Config(retries={"max_attempts": 0}))
    client.failures = (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError)
    return client


@pytest.mark.parametrize("key", ["plain", "a b%2F+?&#=ü", "x" * 1000, "folder//twice/", "%25"])
def test_keys_arrive_as_they_were_sent(bucket: Bucket, client: Any, key: str) -> None:
    client.put_object(Bucket=bucket.name, Key=key, Body=b"text")

    assert bucket.keys() == [key]
    assert bucket.get(key) == b"text"
    (seen,) = bucket.requests("PUT")
    assert (seen.key, seen.num_received, seen.status) == (key, 4, 200)


def test_refused_requests_never_reach_the_server(bucket: Bucket, client: Any) -> None:
    fault = bucket.fault("answer", method="PUT", times=2, status=500)

    for _ in range(2):
        with pytest.raises(client.failures, match=r"500|InternalError"):
            client.put_object(Bucket=bucket.name, Key="key", Body=b"text")
    assert bucket.keys() == []
    client.put_object(Bucket=bucket.name, Key="key", Body=b"text")

    assert fault.num_applied == 2
    assert [request.status for request in bucket.requests("PUT")] == [500, 500, 200]


@pytest.mark.parametrize("num_bytes", [0, 1, 99_999])
def test_an_answer_is_cut_after_so_many_bytes(bucket: Bucket, client: Any, num_bytes: int) -> None:
    bucket.put("key", bytes(100_000))
    bucket.fault("cut", method="GET", key="key", num_bytes=num_bytes)

    with pytest.raises(client.failures):
        client.get_object(Bucket=bucket.name, Key="key")["Body"].read()
    assert client.get_object(Bucket=bucket.name, Key="key")["Body"].read() == bytes(100_000)

    assert [request.num_sent for request in bucket.requests("GET")] == [num_bytes, 100_000]
    assert bucket.num_sent() == num_bytes + 100_000


def test_an_upload_that_is_cut_leaves_nothing(bucket: Bucket, client: Any) -> None:
    bucket.fault("cut_upload", key="key", num_bytes=10)

    with pytest.raises(client.failures):
        client.put_object(Bucket=bucket.name, Key="key", Body=bytes(100_000))

    assert bucket.keys() == []


def test_a_lost_answer_is_to_a_request_that_was_served(bucket: Bucket, client: Any) -> None:
    bucket.fault("lose", method="PUT")

    with pytest.raises(client.failures):
        client.put_object(Bucket=bucket.name, Key="key", Body=b"text")

    assert bucket.keys() == ["key"]


def test_a_held_request_waits_for_its_release(bucket: Bucket, client: Any) -> None:
    held = bucket.fault("hold", method="PUT", times=None)
    writer = threading.Thread(
        target=client.put_object, kwargs={"Bucket": bucket.name, "Key": "key", "Body": b"text"}
    )
    writer.start()

    assert held.arrived.wait(60)
    assert bucket.keys() == []
    held.release()
    writer.join()

    assert bucket.keys() == ["key"]


def test_of_two_conditional_writes_one_wins(bucket: Bucket, client: Any) -> None:
    client.put_object(Bucket=bucket.name, Key="key", Body=b"first", IfNoneMatch="*")

    with pytest.raises(client.failures, match="PreconditionFailed"):
        client.put_object(Bucket=bucket.name, Key="key", Body=b"second", IfNoneMatch="*")

    assert bucket.get("key") == b"first"


def test_a_bucket_knows_only_its_own_requests_and_faults(bucket: Bucket, client: Any) -> None:
    other = bucket.server.make_bucket(versioned=True)
    other.fault("answer", times=None)

    client.put_object(Bucket=bucket.name, Key="key", Body=b"text")

    assert other.requests() == []
    assert len(bucket.requests()) == 1
