"""Sources on object storage are found as the same files in a folder are, and through failures."""

import gzip
import hashlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.object_server import Bucket
from tokmill.tasks.core.errors import RemoteError, SourceError
from tokmill.tasks.formats.text.source_files import resolve_files
from tokmill.tasks.formats.text.sources import SourceSpec
from tokmill.tasks.store.digest import FileDigests

pytestmark = pytest.mark.objects

NAMES = ["a", "b", ".c", "a.txt", "b-", "ab", "_x.txt", "_temporary", "b.txt~"]
ANY_FIXTURE = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


class _NoDigests:
    def digest(self, file: object) -> str:
        return hashlib.sha256(str(file).encode()).hexdigest()


def put(bucket: Bucket, folder: Path, *keys: str) -> None:
    """Write the same files into a bucket and into a folder."""
    for key in keys:
        bucket.put(key, key.encode())
        path = folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(key.encode())


def names(base: str, *patterns: str, **options: Any) -> list[str]:
    spec = SourceSpec(files=[f"{base}/{pattern}" for pattern in patterns], format="text", **options)
    found, root = resolve_files(spec, Path("/"), _NoDigests(), source="s")
    assert all(one.value["path"] == f"{root}/{one.value['name']}" for one in found)
    return [one.value["name"] for one in found]


@pytest.mark.parametrize("pattern", ["**/*.txt", "d/*/*.txt", "d/p=1/*.txt"])
def test_the_log_of_a_delta_table_decides(bucket: Bucket, pattern: str) -> None:
    for key in ("d/p=1/a.txt", "d/p=1/b.txt"):
        bucket.put(key, b"text")
    bucket.put(f"d/_delta_log/{0:020}.json", b'{"add": {"path": "p=1/a.txt"}}\n')

    assert [name.rpartition("/")[2] for name in names(bucket.url, pattern)] == ["a.txt"]
    assert len(names(bucket.url, pattern, hidden="include")) == 2


@pytest.mark.parametrize("exclude", [["b"], ["*.md"], ["d/e/**"], ["d/e"], ["d/*.txt", "e"]])
def test_exclusion_is_that_of_a_folder(bucket: Bucket, tmp_path: Path, exclude: list[str]) -> None:
    put(bucket, tmp_path, "d/a.txt", "d/b/1.txt", "d/b.md", "d/e/c.txt", "e/f.txt")

    def found(base: str) -> list[str]:
        return names(base, "**", exclude=[f"{base}/{one}" if "/" in one else one for one in exclude])

    assert found(bucket.url) == found(str(tmp_path))


def test_a_path_as_exclusion_of_a_url_is_refused(bucket: Bucket) -> None:
    with pytest.raises(SourceError, match=r"drafts/.*is a path of this machine.*write a URL"):
        names(bucket.url, "**", exclude=["/data/drafts/*"])


def test_marks_of_folders_are_no_files(bucket: Bucket) -> None:
    for key in ("web/", "web/a/", "web/a/x.txt", "web/b", "web/b/y.txt", "web/c_$folder$", "web/empty.txt"):
        bucket.put(key, b"text" if key.endswith(("x.txt", "y.txt", "a/")) else b"")

    assert names(bucket.url, "web/**") == ["a/x.txt", "b/y.txt", "empty.txt"]
    assert names(bucket.url, "web/*") == ["empty.txt"]


ODD = ["a b.txt", "ü/é.txt", "50%.txt", "a%20b.txt", "a+b.txt", "#1.txt", "'q\".txt", "a//b.txt", "&=;.txt"]
ODD += ["~x.txt", "what?.txt", "[1]*.txt", f"{'long' * 200}.txt"]


def test_odd_keys_are_found_and_read(bucket: Bucket, tmp_path: Path) -> None:
    for key in ODD:
        bucket.put(f"odd/{key}", key.encode())

    spec = SourceSpec(files=[f"{bucket.url}/odd/**"], format="text")
    found, _ = resolve_files(spec, Path("/"), FileDigests(tmp_path), source="s")

    digests = {one.value["name"]: one.value["digest"] for one in found}
    assert digests == {key: hashlib.blake2b(key.encode(), digest_size=32).hexdigest() for key in ODD}
    assert names(bucket.url, "odd/[[]1][*].txt") == ["[1]*.txt"]


@given(
    keys=st.sets(
        st.lists(st.sampled_from(NAMES), min_size=1, max_size=4).map("/".join), min_size=1, max_size=6
    ),
    pattern=st.lists(
        st.sampled_from(["*", "**", "a", "?", "[!b]*", ".*", "*.txt"]), min_size=1, max_size=4
    ).map("/".join),
    hidden=st.sampled_from(["skip", "include"]),
)
@settings(max_examples=40, suppress_health_check=ANY_FIXTURE)
def test_any_pattern_matches_what_it_matches_in_a_folder(
    bucket: Bucket, tmp_path_factory: pytest.TempPathFactory, keys: set[str], pattern: str, hidden: str
) -> None:
    files = {key for key in keys if not any(other.startswith(f"{key}/") for other in keys)}
    folder = tmp_path_factory.mktemp("files")
    other = bucket.server.make_bucket()
    put(other, folder, *files)

    def found(base: str) -> list[str] | str:
        try:
            return names(base, pattern, hidden=hidden)
        except SourceError as error:
            return "is a folder" if "is a folder" in str(error) else "matches nothing"

    assert found(other.url) == found(str(folder))


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("web/*.parquet", r"matches no file \(.*/web holds a.txt\)"),
        ("none/*.txt", r"matches no file \(.*/none is empty\)"),
        ("web", r"/web' is a folder; name the files in it, e\.g\. .*/web/\*\*/\*\.txt"),
        ("", "names no object"),
    ],
)
def test_patterns_that_match_nothing(bucket: Bucket, pattern: str, words: str) -> None:
    bucket.put("web/a.txt", b"text")

    with pytest.raises(SourceError, match=words):
        names(bucket.url, pattern)


def test_a_bucket_that_is_missing_or_closed_is_not_asked_again(bucket: Bucket) -> None:
    with pytest.raises(SourceError, match=r"no-such-bucket.*bucket does not exist; create it, or correct"):
        names("s3://no-such-bucket", "**")

    bucket.fault("answer", status=403, times=None)
    with pytest.raises(SourceError, match=r"refuses.*check the credentials"):
        names(bucket.url, "**")
    assert len(bucket.requests()) == 1


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (["s3://me:secret@bucket/a.txt"], "put credentials into the"),
        (["https://host/a.txt?X-Amz-Signature=secret"], "may hold a secret"),
        (["s3://bucket*/a.txt"], "wildcard in the name of the bucket"),
        (["s3://bucket/a.txt", "/data/b.txt"], "make each a source of its own"),
        (["s3://one/a.txt", "s3://two/b.txt"], "share no bucket; make each a source of its own"),
        (["nowhere://bucket/a.txt"], "nowhere://"),
    ],
)
def test_urls_that_no_source_can_have(files: list[str], words: str) -> None:
    with pytest.raises((SourceError, RemoteError), match=words) as caught:
        resolve_files(SourceSpec(files=files), Path("/"), _NoDigests(), source="s")

    assert "secret@" not in str(caught.value)
    assert "Signature" not in str(caught.value)
    assert "source 's'" in str(caught.value)


def test_a_digest_is_read_once_and_follows_the_content(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put("web/a.txt", b"text")
    bucket.put("web/b.txt", b"other")

    def digests(*, rehash: bool = False) -> list[str]:
        spec = SourceSpec(files=[f"{bucket.url}/web/*.txt"])
        found, _ = resolve_files(spec, Path("/"), FileDigests(tmp_path, rehash=rehash), source="s")
        return [one.digest for one in found]

    first = digests()
    assert bucket.num_sent() == 9
    assert digests() == first
    assert bucket.num_sent() == 9
    assert digests(rehash=True) == first
    assert bucket.num_sent() == 18

    upload_in_parts(bucket, "web/a.txt", b"text")  # the same bytes under another ETag
    assert digests() == first
    assert bucket.num_sent() == 22

    bucket.put("web/b.txt", b"OTHER")
    assert digests()[0] == first[0]
    assert digests()[1] != first[1]


def upload_in_parts(bucket: Bucket, key: str, content: bytes) -> None:
    client, place = bucket.server.client, {"Bucket": bucket.name, "Key": key}
    upload = {**place, "UploadId": client.create_multipart_upload(**place)["UploadId"]}
    etag = client.upload_part(**upload, PartNumber=1, Body=content)["ETag"]
    client.complete_multipart_upload(**upload, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": etag}]})


def test_keys_with_empty_parts_are_found_below_two_stars(bucket: Bucket) -> None:
    for key in ("/lead.txt", "a//b.txt", "a/c.txt", "//two.txt", "top.txt"):
        bucket.put(key, b"text")

    assert names(bucket.url, "*.txt") == ["top.txt"]
    assert names(bucket.url, "*/*.txt") == ["a/c.txt"]
    assert names(bucket.url, "**/*.txt") == ["//two.txt", "/lead.txt", "a//b.txt", "a/c.txt", "top.txt"]


def test_what_is_stored_is_read_whatever_its_headers_say(bucket: Bucket, tmp_path: Path) -> None:
    """Some tools mark a `.gz` as encoded for transport, and clients of the web would decompress it."""
    content = gzip.compress(b'{"text": "a"}\n')
    bucket.server.client.put_object(
        Bucket=bucket.name, Key="a.jsonl.gz", Body=content, ContentEncoding="gzip", ContentType="text/plain"
    )

    spec = SourceSpec(files=[f"{bucket.url}/*.gz"])
    found, _ = resolve_files(spec, Path("/"), FileDigests(tmp_path), source="s")

    assert found[0].value["digest"] == hashlib.blake2b(content, digest_size=32).hexdigest()
