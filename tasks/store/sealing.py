"""Seals: the second line of a JSON file holds the digest of all its other lines, byte for byte.

So no change goes unnoticed, of whatever field. Records and tombstones are sealed.
"""

import re

from tokmill.tasks.store.digest import digest_bytes


def sealed(field: str, body: bytes) -> bytes:
    """Return the bytes of a JSON object with its seal.

    Args:
        field: the name of the seal.
        body: the object without it, its fields on lines of their own.
    """
    return b'{\n "%s": "%s",\n' % (field.encode(), digest_bytes(body).encode()) + body.removeprefix(b"{\n")


def broken_seal(field: str, data: bytes) -> str | None:
    """Return what is wrong with the seal in a file's bytes; None if nothing is."""
    seal = re.match(rb'\{\n "%s": "([0-9a-f]{64})",\n' % field.encode(), data)
    if seal is None:
        return "the second line holds no digest of the others"
    if digest_bytes(b"{\n" + data[seal.end() :]) != seal[1].decode("ascii"):
        return "its lines do not have the digest in the second line; it was changed after it was written"
    return None
