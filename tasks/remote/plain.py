"""Any file system of fsspec, through what all of them have in common.

Google's and Azure's services create an object only if there is none, for which fsspec has no operation;
others may create one (`mode="create"`). Any other service is told of by a warning when it is first written
to: it gets a look before the write and a reading after it, which leaves a moment in which two writers may
both win.
"""

import errno
import inspect
import json
import logging
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tokmill.tasks.core.errors import RemoteError
from tokmill.tasks.remote.faults import ChangedError, persevering
from tokmill.tasks.remote.services import Info

_TIMES = ("mtime", "LastModified", "last_modified", "updated", "modified", "created")
_LOG = logging.getLogger(__name__)
# The library for Google's asks at first of what type a bucket is, by another protocol, and waits a minute
# where that does not get through. Only zonal buckets need it; who has one sets the variable.
_DEFAULTS = {"GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}
_ETAGS = ("ETag", "etag", "generation", "md5Hash", "content_md5")


def connected_to(scheme: str) -> Any:
    """Return the file system of a scheme; raises ImportError or ValueError if there is none."""
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    import fsspec

    return fsspec.filesystem(scheme, use_listings_cache=False, skip_instance_cache=True)


class Plain:
    """See `tasks.remote.services.Service`."""

    def __init__(self, scheme: str, filesystem: Any) -> None:
        self._scheme = scheme
        self._filesystem = filesystem
        self._warned = False
        self._creates = "mode" in inspect.signature(_own(filesystem, "pipe_file")).parameters

    def check(self, url: str) -> None:
        """Refuse a name that the library takes for another: Azure's cuts off a `?` at the end."""
        path, name = str(self._filesystem._strip_protocol(url)), url.partition("://")[2].rstrip("/")
        if path != url and not name.endswith(path.strip("/")):
            raise RemoteError(
                f"{url}: the library for {self._scheme}:// takes this name for {path!r}; give the object one "
                "without ?"
            )

    def head(self, url: str) -> Info:
        """Return what is known of an object."""
        found = self._info(self._filesystem.info(url))
        if found.is_folder:
            raise FileNotFoundError(url)
        return found

    def pages(self, folder: str, *, recursive: bool) -> Iterator[list[Info]]:
        """Return what is below a folder, at once."""
        yield [self._info(each) for each in persevering(lambda: self._found(folder, recursive), folder)]

    def _found(self, folder: str, recursive: bool) -> list[dict[str, Any]]:
        try:
            if recursive:
                return list(self._filesystem.find(folder, detail=True).values())
            return list(self._filesystem.ls(folder, detail=True))
        except FileNotFoundError:
            return []

    def get(self, url: str, start: int, end: int | None, etag: str) -> tuple[bytes, str]:
        """Return a range of bytes, and the ETag."""
        if etag and self.head(url).etag != etag:
            raise ChangedError(errno.ESTALE, "the object is not in the expected state", url)
        return bytes(self._filesystem.cat_file(url, start=start or None, end=end)), etag

    def put(self, url: str, data: bytes) -> str:
        """Write an object."""
        self._parent(url)
        self._filesystem.pipe_file(url, data)
        return self.head(url).etag

    def create(self, url: str, data: bytes) -> str:
        """Write an object that does not exist."""
        create = _CREATES.get(self._scheme)
        if create is not None:
            return create(self._filesystem, url.partition("://")[2], data)
        if self._creates:
            self._parent(url)
            self._filesystem.pipe_file(url, data, mode="create")
            return self.head(url).etag
        self._warn()
        with suppress(FileNotFoundError):
            self.head(url)
            raise FileExistsError(url)
        etag = self.put(url, data)
        if self.get(url, 0, None, "")[0] != data:
            raise FileExistsError(url)
        return etag

    def _warn(self) -> None:
        """Say once that two writers may both win."""
        if not self._warned and self._scheme != "memory":
            self._warned = True
            _LOG.warning(
                "%s://: conditional writes are not known of this service; two machines that write to a store "
                "there at the same moment may both win, so let only one write at a time",
                self._scheme,
            )

    def upload(self, path: Path, url: str) -> None:
        """Write a file."""
        self._parent(url)
        persevering(lambda: self._filesystem.put_file(str(path), url), url)

    def remove(self, url: str) -> None:
        """Delete an object."""
        with suppress(FileNotFoundError):
            self._filesystem.rm_file(url)

    def _parent(self, url: str) -> None:
        """Make the folder of an object, for file systems that have folders."""
        with suppress(FileExistsError, NotImplementedError):
            self._filesystem.makedirs(url.rpartition("/")[0], exist_ok=True)

    def _info(self, found: dict[str, Any]) -> Info:
        modified = next((found[name] for name in _TIMES if found.get(name)), 0)
        num_bytes, modified_ns = int(found.get("size") or 0), _nanoseconds(modified)
        names = ("generation",) if self._scheme in ("gs", "gcs") else _ETAGS
        etag = next((str(found[name]) for name in names if found.get(name)), f"{num_bytes}-{modified_ns}")
        return Info(
            self._url(str(found["name"])),
            num_bytes,
            etag.strip('"'),
            str(found.get("version_id") or ""),
            modified_ns,
            is_folder=found.get("type") == "directory",
        )

    def _url(self, name: str) -> str:
        """The URL of a name, which for web servers is one already."""
        return name if "://" in name else f"{self._scheme}://{name.lstrip('/')}"


def _own(filesystem: Any, name: str) -> Any:
    """A method, or the coroutine that it stands for."""
    return getattr(filesystem, f"_{name}", None) or getattr(filesystem, name)


def _nanoseconds(moment: Any) -> int:
    if isinstance(moment, str):
        moment = datetime.fromisoformat(moment)
    if isinstance(moment, datetime):
        moment = moment.timestamp()
    return round(float(moment or 0) * 1_000_000) * 1_000  # a listing may have the same moment in another type


def _create_at_google(filesystem: Any, path: str, data: bytes) -> str:
    """Create an object by one request with `ifGenerationMatch=0`; return its generation."""
    from fsspec.asyn import sync

    bucket, _, key = path.partition("/")
    place = f"{filesystem._location}/upload/storage/v1/b/{quote(bucket)}/o"
    asked = {"uploadType": "multipart", "ifGenerationMatch": "0"}
    named = json.dumps({"name": key}).encode("utf-8")
    mark = uuid.uuid4().hex
    parts = ((b"application/json; charset=UTF-8", named), (b"application/octet-stream", data))
    body = b"".join(b"--%b\r\nContent-Type: %b\r\n\r\n%b\r\n" % (mark.encode(), *part) for part in parts)
    headers = {"Content-Type": f'multipart/related; boundary="{mark}"'}
    sent = {"data": body + f"--{mark}--".encode(), "headers": headers, "json_out": True}
    answer = sync(filesystem.loop, filesystem._call, "POST", place, **asked, **sent)
    return str(answer["generation"])


def _create_at_azure(filesystem: Any, path: str, data: bytes) -> str:
    """Create an object by one request with `If-None-Match: *`; return its ETag."""
    from azure.core.exceptions import ResourceExistsError
    from fsspec.asyn import sync

    container, _, name = path.partition("/")

    async def write() -> Any:
        async with filesystem.service_client.get_blob_client(container, name) as blob:
            try:
                return await blob.upload_blob(data, overwrite=False)
            except ResourceExistsError as error:  # its status, 409, is that of faults which pass
                raise FileExistsError(errno.EEXIST, "exists", path) from error

    return str(sync(filesystem.loop, write)["etag"]).strip('"')


_CREATES: Mapping[str, Callable[[Any, str, bytes], str]] = {
    "gs": _create_at_google, "gcs": _create_at_google,
    "az": _create_at_azure, "abfs": _create_at_azure, "abfss": _create_at_azure,
}  # fmt: skip
"""By scheme: takes fsspec's file system, an object's path without scheme, and bytes; returns its ETag."""
