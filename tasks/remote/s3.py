"""S3, and what speaks its protocol, through s3fs.

A conditional write (`If-None-Match: *`) is the service's own. The first creation in a bucket is
sent twice: a service that takes the second one, too, ignores the condition. One that ignores or refuses
conditions (status 501) is told of by a warning, and gets a look before and after the write instead, which
leaves a moment in which two writers may both win.
"""

import errno
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from tokmill.tasks.remote.faults import ChangedError, persevering
from tokmill.tasks.remote.services import Info

PART_BYTES = 16 << 20
_MOST_PARTS = 9_000  # a service takes ten thousand
_PARTS_AT_ONCE = 4
_REFUSED = 412
_LOG = logging.getLogger(__name__)
_CONNECTION = {
    "connect_timeout": 10,
    "read_timeout": 60,
    "max_pool_connections": 64,
    "retries": {"total_max_attempts": 1},  # `tasks.remote.faults` tries again
}


def connected() -> Any:
    """Return s3fs's file system; raises ImportError without it."""
    import s3fs

    filesystem = s3fs.S3FileSystem(
        config_kwargs=_CONNECTION, use_listings_cache=False, skip_instance_cache=True
    )
    filesystem.retries = 1
    return filesystem


class S3:
    """See `tasks.remote.services.Service`."""

    def __init__(self, filesystem: Any) -> None:
        self._filesystem = filesystem
        self._conditional: dict[str, bool] = {}  # by bucket: whether writes with conditions are what they say

    def check(self, url: str) -> None:
        """Refuse nothing: a key may hold any letter."""

    def head(self, url: str) -> Info:
        """Return what is known of an object."""
        found = self._call("head_object", url)
        return Info(
            url,
            int(found["ContentLength"]),
            _etag(found),
            str(found.get("VersionId") or ""),
            int(found["LastModified"].timestamp()) * 1_000_000_000,
        )

    def pages(self, folder: str, *, recursive: bool) -> Iterator[list[Info]]:
        """Return what is below a folder, a thousand objects at a time."""
        scheme, bucket, key = _parts(folder)
        prefix = f"{key.rstrip('/')}/" if key.strip("/") else ""
        asked = {"Bucket": bucket, "Prefix": prefix} | ({} if recursive else {"Delimiter": "/"})
        while True:
            page = persevering(lambda: self._filesystem.call_s3("list_objects_v2", **asked), folder)
            folders = [found["Prefix"] for found in page.get("CommonPrefixes", ())]
            infos = [Info(f"{scheme}://{bucket}/{name.rstrip('/')}", is_folder=True) for name in folders]
            yield infos + [_listed(f"{scheme}://{bucket}", found) for found in page.get("Contents", ())]
            if not page.get("IsTruncated"):
                return
            asked["ContinuationToken"] = page["NextContinuationToken"]

    def get(self, url: str, start: int, end: int | None, etag: str) -> tuple[bytes, str]:
        """Return a range of bytes, and the ETag."""
        from fsspec.asyn import sync

        if end is not None and end <= start:
            return b"", etag
        wanted = {"Range": f"bytes={start}-{'' if end is None else end - 1}"} if start or end else {}
        condition = {"IfMatch": f'"{etag}"'} if etag else {}
        _, bucket, key = _parts(url)
        data, found = sync(
            self._filesystem.loop, _got, self._filesystem, Bucket=bucket, Key=key, **wanted, **condition
        )
        if etag and found != etag:  # of a service that ignores the condition
            raise ChangedError(errno.ESTALE, "the object is not in the expected state", url)
        return data, found

    def put(self, url: str, data: bytes) -> str:
        """Write an object."""
        return _etag(self._call("put_object", url, Body=data))

    def create(self, url: str, data: bytes) -> str:
        """Write an object that does not exist."""
        if self._has_conditions(url):
            try:
                etag = _etag(self._call("put_object", url, Body=data, IfNoneMatch="*"))
            except OSError as error:
                if not _is_unknown(error):
                    raise
                self._warn(url)
            else:
                self._prove(url, data)
                return etag
        with suppress(FileNotFoundError):
            self.head(url)
            raise FileExistsError(url)
        etag = self.put(url, data)
        if self.head(url).etag != etag:
            raise FileExistsError(url)
        return etag

    def _has_conditions(self, url: str) -> bool:
        return self._conditional.get(_parts(url)[1], True)

    def _prove(self, url: str, data: bytes) -> None:
        """Create an object again that was created just now, unless the service is known to refuse that."""
        bucket = _parts(url)[1]
        if bucket in self._conditional:
            return
        try:
            self._call("put_object", url, Body=data, IfNoneMatch="*")
        except Exception as error:
            status = (
                getattr(error.__cause__, "response", {}).get("ResponseMetadata", {}).get("HTTPStatusCode")
            )
            if status == _REFUSED:
                self._conditional[bucket] = True
        else:
            self._warn(url)

    def _warn(self, url: str) -> None:
        scheme, bucket, _ = _parts(url)
        if self._has_conditions(url):
            self._conditional[bucket] = False
            _LOG.warning(
                "%s://%s: the service has no conditional writes (If-None-Match); two machines that write "
                "to a store there at the same moment may both win, so let only one write at a time",
                scheme,
                bucket,
            )

    def upload(self, path: Path, url: str) -> None:
        """Write a file, in parts if it is large."""
        num_bytes = path.stat().st_size
        if num_bytes <= 2 * PART_BYTES:
            data = path.read_bytes()
            persevering(lambda: self.put(url, data), url)
        else:
            self._upload_in_parts(path, url, max(PART_BYTES, -(-num_bytes // _MOST_PARTS)), num_bytes)

    def _upload_in_parts(self, path: Path, url: str, part_bytes: int, num_bytes: int) -> None:
        begun = persevering(lambda: self._call("create_multipart_upload", url), url)
        upload = {"UploadId": begun["UploadId"]}

        def send(number: int) -> dict[str, Any]:
            with path.open("rb") as file:
                file.seek((number - 1) * part_bytes)
                data = file.read(part_bytes)
            sent = persevering(
                lambda: self._call("upload_part", url, Body=data, PartNumber=number, **upload), url
            )
            return {"PartNumber": number, "ETag": sent["ETag"]}

        try:
            with ThreadPoolExecutor(_PARTS_AT_ONCE) as threads:
                parts = list(threads.map(send, range(1, 1 + -(-num_bytes // part_bytes))))
            whole = {"MultipartUpload": {"Parts": parts}}
            persevering(lambda: self._completed(url, upload, whole, num_bytes), url)
        except BaseException:
            with suppress(Exception):  # what stays is removed by the bucket's own rule
                self._call("abort_multipart_upload", url, **upload)
            raise

    def _completed(self, url: str, upload: dict[str, Any], whole: dict[str, Any], num_bytes: int) -> None:
        try:
            self._call("complete_multipart_upload", url, **upload, **whole)
        except FileNotFoundError:  # an earlier attempt may have been answered by nobody
            if self.head(url).num_bytes != num_bytes:
                raise

    def remove(self, url: str) -> None:
        """Delete an object."""
        self._call("delete_object", url)

    def _call(self, method: str, url: str, **more: Any) -> Any:
        _, bucket, key = _parts(url)
        return self._filesystem.call_s3(method, Bucket=bucket, Key=key, **more)


async def _got(filesystem: Any, **asked: Any) -> tuple[bytes, str]:
    answer = await filesystem._call_s3("get_object", **asked)
    async with answer["Body"] as body:
        data = await body.read()
    if len(data) != int(answer.get("ContentLength", len(data))):
        raise ConnectionResetError("the answer is shorter than it should be")
    return data, _etag(answer)


def _parts(url: str) -> tuple[str, str, str]:
    """Return scheme, bucket and key."""
    scheme, _, rest = url.partition("://")
    bucket, _, key = rest.partition("/")
    return scheme, bucket, key


def _etag(found: Any) -> str:
    return str(found.get("ETag") or "").strip('"')


def _listed(bucket: str, found: Any) -> Info:
    modified = int(found["LastModified"].timestamp()) * 1_000_000_000
    return Info(f"{bucket}/{found['Key']}", int(found["Size"]), _etag(found), "", modified)


def _is_unknown(error: OSError) -> bool:
    """Whether the service does not know conditional writes."""
    response = getattr(error.__cause__, "response", None) or {}
    return bool(response.get("ResponseMetadata", {}).get("HTTPStatusCode") == 501)
