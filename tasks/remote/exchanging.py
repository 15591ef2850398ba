"""Writing an object only in a known state, where fsspec has no operation for it but the service has.

    gs://                   the state is the object's generation; the write has `ifGenerationMatch`
    az://, abfs://          the state is its ETag; the write has `If-Match`, or `If-None-Match: *`

An object that does not exist has the state NONE. Each is one request, which the service refuses if the object
is in another state.
"""

import errno
import json
import uuid
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias
from urllib.parse import quote

from tokmill.tasks.remote.faults import ChangedError

NONE = ""
Exchange: TypeAlias = Callable[[Any, str, bytes, str], str]
"""Takes fsspec's file system, an object's path without scheme, bytes, and its state; gives the new one."""


def _of_google(filesystem: Any, path: str, data: bytes, generation: str) -> str:
    from fsspec.asyn import sync

    bucket, _, key = path.partition("/")
    place = f"{filesystem._location}/upload/storage/v1/b/{quote(bucket)}/o"
    asked = {"uploadType": "multipart", "ifGenerationMatch": generation or "0"}
    named = json.dumps({"name": key}).encode("utf-8")
    mark = uuid.uuid4().hex
    parts = ((b"application/json; charset=UTF-8", named), (b"application/octet-stream", data))
    body = b"".join(b"--%b\r\nContent-Type: %b\r\n\r\n%b\r\n" % (mark.encode(), *part) for part in parts)
    headers = {"Content-Type": f'multipart/related; boundary="{mark}"'}
    sent = {"data": body + f"--{mark}--".encode(), "headers": headers, "json_out": True}
    try:
        answer = sync(filesystem.loop, filesystem._call, "POST", place, **asked, **sent)
    except FileExistsError as error:  # which gcsfs makes of status 412
        if generation == NONE:
            raise
        raise ChangedError(errno.ESTALE, "the object is not in the expected state", path) from error
    return str(answer["generation"])


def _of_azure(filesystem: Any, path: str, data: bytes, etag: str) -> str:
    from azure.core import MatchConditions
    from azure.core.exceptions import ResourceExistsError
    from fsspec.asyn import sync

    container, _, name = path.partition("/")

    async def write() -> Any:
        async with filesystem.service_client.get_blob_client(container, name) as blob:
            if etag == NONE:
                try:
                    return await blob.upload_blob(data, overwrite=False)
                except ResourceExistsError as error:  # its status, 409, is that of faults which pass
                    raise FileExistsError(errno.EEXIST, "exists", path) from error
            asked = {"etag": f'"{etag}"', "match_condition": MatchConditions.IfNotModified}
            return await blob.upload_blob(data, overwrite=True, **asked)

    return str(sync(filesystem.loop, write)["etag"]).strip('"')


EXCHANGES: Mapping[str, Exchange] = {
    "gs": _of_google, "gcs": _of_google, "az": _of_azure, "abfs": _of_azure, "abfss": _of_azure,
}  # fmt: skip
"""By scheme."""
STATES: Mapping[str, str] = {"gs": "generation", "gcs": "generation"}
"""By scheme, the name of an object's state where it is not its ETag."""
