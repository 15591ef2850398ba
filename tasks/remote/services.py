"""The services behind URLs, each with the few operations that everything else is made of.

One file system object of fsspec per process and scheme; its library finds credentials in the environment. An
operation is one attempt; `pages` and `upload` try again by themselves. Where a service has no conditional
writes, two writers may both win, and a warning says so.
"""

import errno
import functools
import inspect
import json
import logging
import os
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tokmill.tasks.core.errors import RemoteError
from tokmill.tasks.remote.faults import CHANGED, ChangedError, answer_of, persevering
from tokmill.tasks.remote.location import Info, check_url, scheme_of

PART_BYTES = 16 << 20
_MOST_PARTS = 9_000  # S3 takes ten thousand
_PARTS_AT_ONCE = 4
_EXTRAS = {
    "s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs",
    "az": "azure", "abfs": "azure", "abfss": "azure", "adl": "azure",
}  # fmt: skip
_LIBRARIES = {"s3": "s3fs", "gcs": "gcsfs", "azure": "adlfs"}  # by extra
_S3_CONNECTION = {"connect_timeout": 10, "read_timeout": 60, "max_pool_connections": 64}
_S3_ATTEMPTS = {"retries": {"total_max_attempts": 1}}  # `tasks.remote.faults` tries again
_TIMES = ("mtime", "LastModified", "last_modified", "updated", "modified", "created")
_ETAGS = ("ETag", "etag", "generation", "md5Hash", "content_md5")
_LOG = logging.getLogger(__name__)


class Service:
    """Any file system of fsspec, through what all of them have in common."""

    def __init__(self, scheme: str, filesystem: Any) -> None:
        self._scheme = scheme
        self._filesystem = filesystem
        self._warned = set[str]()
        pipe = getattr(filesystem, "_pipe_file", None) or filesystem.pipe_file
        self._creates = "mode" in inspect.signature(pipe).parameters

    def check(self, url: str) -> None:
        """Refuse a name that the library takes for another: Azure's cuts off a `?` at the end."""
        path, name = str(self._filesystem._strip_protocol(url)), url.partition("://")[2].rstrip("/")
        if path != url and not name.endswith(path.strip("/")):
            library = f"the library for {self._scheme}://"
            raise RemoteError(f"{url}: {library} takes this name for {path!r}; give the object one without ?")

    def head(self, url: str) -> Info:
        """Return what is known of an object."""
        info = self._info(self._filesystem.info(url))
        if info.is_folder:
            raise FileNotFoundError(url)
        return info

    def pages(self, folder: str, *, recursive: bool) -> Iterator[list[Info]]:
        """Yield what is below a folder, page by page."""

        def below() -> list[dict[str, Any]]:
            try:
                if recursive:
                    return list(self._filesystem.find(folder, detail=True).values())
                return list(self._filesystem.ls(folder, detail=True))
            except FileNotFoundError:
                return []

        yield [self._info(each) for each in persevering(below, folder)]

    def get(self, url: str, start: int, end: int | None, etag: str) -> tuple[bytes, str]:
        """Return the bytes [start, end) of an object, and its ETag; `etag`, if given, must be its own."""
        if etag and self.head(url).etag != etag:
            raise ChangedError(errno.ESTALE, CHANGED, url)
        return bytes(self._filesystem.cat_file(url, start=start or None, end=end)), etag

    def put(self, url: str, data: bytes) -> None:
        """Write an object."""
        self._make_parent(url)
        self._filesystem.pipe_file(url, data)

    def create(self, url: str, data: bytes) -> None:
        """Write an object that does not exist; FileExistsError, or status 412, if it does."""
        if create := _CREATES.get(self._scheme):
            create(self._filesystem, url.partition("://")[2], data)
        elif self._creates:
            self._make_parent(url)
            self._filesystem.pipe_file(url, data, mode="create")
        else:
            if self._scheme != "memory":
                self._warn(f"{self._scheme}://")
            self._create_unconditionally(url, data)

    def _create_unconditionally(self, url: str, data: bytes) -> None:
        with suppress(FileNotFoundError):
            self.head(url)
            raise FileExistsError(url)
        self.put(url, data)
        if self.get(url, 0, None, "")[0] != data:
            raise FileExistsError(url)

    def _warn(self, place: str) -> None:
        """Say once that two writers may both win."""
        if place not in self._warned:
            self._warned.add(place)
            _LOG.warning(
                "%s: the service is not known to have conditional writes; two machines that write to a store "
                "there at the same moment may both win, so let only one write at a time",
                place,
            )

    def upload(self, path: Path, url: str) -> None:
        """Write a local file of any size."""
        self._make_parent(url)
        persevering(lambda: self._filesystem.put_file(str(path), url), url)

    def remove(self, url: str) -> None:
        """Delete an object, which need not exist."""
        with suppress(FileNotFoundError):
            self._filesystem.rm_file(url)

    def _make_parent(self, url: str) -> None:
        with suppress(FileExistsError, NotImplementedError):  # some services have no folders to make
            self._filesystem.makedirs(url.rpartition("/")[0], exist_ok=True)

    def _info(self, about: dict[str, Any]) -> Info:
        modified = next((about[name] for name in _TIMES if about.get(name)), 0)
        num_bytes, modified_ns = int(about.get("size") or 0), _nanoseconds(modified)
        names = ("generation",) if self._scheme in ("gs", "gcs") else _ETAGS
        etag = next((str(about[name]) for name in names if about.get(name)), f"{num_bytes}-{modified_ns}")
        name = str(about["name"])  # of a web server, it is a URL already
        url = name if "://" in name else f"{self._scheme}://{name.lstrip('/')}"
        return Info(url, num_bytes, etag.strip('"'), modified_ns, is_folder=about.get("type") == "directory")


def _nanoseconds(moment: Any) -> int:
    if isinstance(moment, str):
        moment = datetime.fromisoformat(moment)
    if isinstance(moment, datetime):
        moment = moment.timestamp()
    return round(float(moment or 0) * 1_000_000) * 1_000  # a listing may have the same moment in another type


def _create_at_google(filesystem: Any, path: str, data: bytes) -> None:
    """Create an object by one request with `ifGenerationMatch=0`."""
    from fsspec.asyn import sync

    bucket, _, key = path.partition("/")
    url = f"{filesystem._location}/upload/storage/v1/b/{quote(bucket)}/o"
    query = {"uploadType": "multipart", "ifGenerationMatch": "0"}
    mark, name = uuid.uuid4().hex, json.dumps({"name": key}).encode("utf-8")
    parts = ((b"application/json; charset=UTF-8", name), (b"application/octet-stream", data))
    body = b"".join(b"--%b\r\nContent-Type: %b\r\n\r\n%b\r\n" % (mark.encode(), *part) for part in parts)
    headers = {"Content-Type": f'multipart/related; boundary="{mark}"'}
    content = {"data": body + f"--{mark}--".encode(), "headers": headers, "json_out": True}
    sync(filesystem.loop, filesystem._call, "POST", url, **query, **content)


def _create_at_azure(filesystem: Any, path: str, data: bytes) -> None:
    """Create an object by one request with `If-None-Match: *`."""
    from azure.core.exceptions import ResourceExistsError
    from fsspec.asyn import sync

    container, _, name = path.partition("/")

    async def write() -> None:
        async with filesystem.service_client.get_blob_client(container, name) as blob:
            try:
                await blob.upload_blob(data, overwrite=False)
            except ResourceExistsError as error:  # its status, 409, is that of faults which pass
                raise FileExistsError(errno.EEXIST, "exists", path) from error

    sync(filesystem.loop, write)


_CREATES: Mapping[str, Callable[[Any, str, bytes], None]] = {
    "gs": _create_at_google, "gcs": _create_at_google,
    "az": _create_at_azure, "abfs": _create_at_azure, "abfss": _create_at_azure,
}  # fmt: skip


class S3(Service):
    """S3, and what speaks its protocol, through s3fs.

    The first creation in a bucket is sent twice: a service that takes the second one ignores conditions.
    """

    def __init__(self, scheme: str, filesystem: Any) -> None:
        super().__init__(scheme, filesystem)
        self._proven = set[str]()  # buckets in which conditions hold

    def head(self, url: str) -> Info:  # noqa: D102
        about = self._call("head_object", url)
        return _s3_info(url, about, about["ContentLength"])

    def pages(self, folder: str, *, recursive: bool) -> Iterator[list[Info]]:  # noqa: D102
        scheme, bucket, key = _parts(folder)
        prefix = f"{key.rstrip('/')}/" if key.strip("/") else ""
        query = {"Bucket": bucket, "Prefix": prefix} | ({} if recursive else {"Delimiter": "/"})
        while True:
            page = persevering(lambda: self._filesystem.call_s3("list_objects_v2", **query), folder)
            root = f"{scheme}://{bucket}"
            folders = [each["Prefix"].rstrip("/") for each in page.get("CommonPrefixes", ())]
            yield [Info(f"{root}/{name}", is_folder=True) for name in folders] + [
                _s3_info(f"{root}/{each['Key']}", each, each["Size"]) for each in page.get("Contents", ())
            ]
            if not page.get("IsTruncated"):
                return
            query["ContinuationToken"] = page["NextContinuationToken"]

    def get(self, url: str, start: int, end: int | None, etag: str) -> tuple[bytes, str]:  # noqa: D102
        from fsspec.asyn import sync

        if end is not None and end <= start:
            return b"", etag
        bounds = {"Range": f"bytes={start}-{'' if end is None else end - 1}"} if start or end else {}
        condition = {"IfMatch": f'"{etag}"'} if etag else {}
        _, bucket, key = _parts(url)
        where = {"Bucket": bucket, "Key": key}
        data, tag = sync(self._filesystem.loop, _s3_body, self._filesystem, **where, **bounds, **condition)
        if etag and tag != etag:  # of a service that ignores the condition
            raise ChangedError(errno.ESTALE, CHANGED, url)
        return data, tag

    def put(self, url: str, data: bytes) -> None:  # noqa: D102
        self._call("put_object", url, Body=data)

    def create(self, url: str, data: bytes) -> None:  # noqa: D102
        bucket = url[: -len(_parts(url)[2]) - 1]
        if bucket not in self._warned:
            try:
                self._call("put_object", url, Body=data, IfNoneMatch="*")
            except OSError as error:
                if answer_of(error)[0] != 501:  # which says that it does not know conditions
                    raise
                self._warn(bucket)
            else:
                self._prove(bucket, url, data)
                return
        self._create_unconditionally(url, data)

    def _prove(self, bucket: str, url: str, data: bytes) -> None:
        if bucket in self._proven:
            return
        try:
            self._call("put_object", url, Body=data, IfNoneMatch="*")
            self._warn(bucket)
        except Exception as error:
            if answer_of(error)[0] == 412:
                self._proven.add(bucket)

    def upload(self, path: Path, url: str) -> None:
        """Write a file, in parts if it is large."""
        num_bytes = path.stat().st_size
        part_bytes = max(PART_BYTES, -(-num_bytes // _MOST_PARTS))
        if num_bytes <= 2 * PART_BYTES:
            data = path.read_bytes()
            persevering(lambda: self.put(url, data), url)
            return

        def call(method: str, **more: Any) -> Any:
            return persevering(lambda: self._call(method, url, **more), url)

        upload = {"UploadId": call("create_multipart_upload")["UploadId"]}

        def send(number: int) -> dict[str, Any]:
            with path.open("rb") as file:
                file.seek((number - 1) * part_bytes)
                data = file.read(part_bytes)
            sent = call("upload_part", Body=data, PartNumber=number, **upload)
            return {"PartNumber": number, "ETag": sent["ETag"]}

        def complete(parts: list[dict[str, Any]]) -> None:
            try:
                self._call("complete_multipart_upload", url, **upload, MultipartUpload={"Parts": parts})
            except FileNotFoundError:  # the answer to an earlier attempt may have been lost
                if self.head(url).num_bytes != num_bytes:
                    raise

        try:
            with ThreadPoolExecutor(_PARTS_AT_ONCE) as threads:
                parts = list(threads.map(send, range(1, 1 + -(-num_bytes // part_bytes))))
            persevering(lambda: complete(parts), url)
        except BaseException:
            with suppress(Exception):  # what stays is removed by the bucket's own rule
                self._call("abort_multipart_upload", url, **upload)
            raise

    def remove(self, url: str) -> None:  # noqa: D102
        self._call("delete_object", url)

    def _call(self, method: str, url: str, **more: Any) -> Any:
        _, bucket, key = _parts(url)
        return self._filesystem.call_s3(method, Bucket=bucket, Key=key, **more)


async def _s3_body(filesystem: Any, **request: Any) -> tuple[bytes, str]:
    answer = await filesystem._call_s3("get_object", **request)
    async with answer["Body"] as body:
        data = await body.read()
    if len(data) != int(answer.get("ContentLength", len(data))):
        raise ConnectionResetError("the answer is shorter than it should be")
    return data, _etag(answer)


def _parts(url: str) -> tuple[str, str, str]:
    scheme, _, bucket, *key = url.split("/", 3)
    return scheme[:-1], bucket, "".join(key)


def _etag(about: Any) -> str:
    return str(about.get("ETag") or "").strip('"')


def _s3_info(url: str, about: Any, num_bytes: int) -> Info:
    return Info(url, int(num_bytes), _etag(about), int(about["LastModified"].timestamp()) * 1_000_000_000)


def require(url: str) -> None:
    """Raise RemoteError unless the library for a URL's service is installed; imports none that is known."""
    scheme = scheme_of(url)
    module = _LIBRARIES.get(_EXTRAS.get(scheme, ""))
    if module is None:
        service_of(url)
    elif sys.modules.get(module, module) is None or find_spec(module) is None:
        raise RemoteError(_missing(scheme, ImportError(module)))


def service_of(url: str) -> Service:
    """Return the service of a URL.

    Raises:
        RemoteError: the URL holds a password, its scheme is unknown, or its library is not installed, or
            cannot reach this name.
    """
    check_url(url)
    service = _service(scheme_of(url), os.getpid())
    if not isinstance(service, S3):  # where a key may hold any letter
        service.check(url)
    return service


def reconnect() -> None:
    """Let the next use of each service look for credentials anew."""
    _service.cache_clear()


@functools.lru_cache(maxsize=32)
def _service(scheme: str, process: int) -> Service:  # one for each process: a fork must not share connections
    try:
        if _EXTRAS.get(scheme) == "s3":
            import s3fs

            config = _S3_CONNECTION | _S3_ATTEMPTS
            filesystem = s3fs.S3FileSystem(
                config_kwargs=config, use_listings_cache=False, skip_instance_cache=True
            )
            filesystem.retries = 1
            return S3(scheme, filesystem)
        # Google's would ask of what type a bucket is, and wait a minute; only zonal buckets need that
        os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
        import fsspec

        filesystem = fsspec.filesystem(scheme, use_listings_cache=False, skip_instance_cache=True)
        return Service(scheme, filesystem)
    except (ImportError, TypeError, ValueError) as error:  # fsspec does not know the scheme, or needs a host
        raise RemoteError(_missing(scheme, error)) from error


def _missing(scheme: str, error: Exception) -> str:
    extra = _EXTRAS.get(scheme)
    if extra is not None:
        return f"{scheme}:// needs a library that is not installed; run: pip install 'tokmill[{extra}]'"
    known = ", ".join(f"{name}://" for name in ("s3", "gs", "az"))
    return f"{scheme}:// cannot be used ({error}); use a folder, {known}, or install its library for fsspec"
