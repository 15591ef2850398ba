"""The fingerprint: the digest of an artifact's recipe.

    fingerprint = BLAKE2b-256(canonical JSON of {stage, version, params, inputs})

`inputs` holds the content digest of each input (a list of them where the role takes several, in the order
given), so an input that is made again to the same bytes changes nothing downstream (early cut-off). Names,
paths, `External.value` and parameters declared with `NOT_IN_FINGERPRINT` stay out.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tokmill.tasks.core.errors import FingerprintError
from tokmill.tasks.core.stage import ArtifactRef, External, Input, Request
from tokmill.tasks.store.canonical import Json, canonical_json, plain
from tokmill.tasks.store.digest import digest_bytes

_RESERVED_ROLES = frozenset({"params", "out"})


def fingerprint_payload(request: Request) -> dict[str, Json]:
    """Return what a request's fingerprint covers: stage, version, parameters and the inputs' digests.

    Raises:
        FingerprintError: a parameter has no canonical form, an input has no digest, or a role has a reserved
        name.
    """
    stage = request.stage
    return {
        "stage": stage.verb,
        "version": stage.version + stage.revision(request.params),
        "params": plain(request.params, f"{stage.verb}: params"),
        "inputs": {role: _digests(stage.verb, role, given) for role, given in request.inputs.items()},
    }


def fingerprint(payload: Mapping[str, Any]) -> str:
    """Return the fingerprint of a payload: 64 hexadecimal characters."""
    return digest_bytes(canonical_json(payload))


def _digests(verb: str, role: str, given: Input | Sequence[Input]) -> Json:
    if role in _RESERVED_ROLES:
        raise FingerprintError(
            f"{verb}: an input cannot be called {role!r}; the run function has a parameter of that name"
        )
    if isinstance(given, ArtifactRef | External):
        return _digest(verb, role, given)
    return [_digest(verb, f"{role}[{index}]", item) for index, item in enumerate(given)]


def _digest(verb: str, role: str, given: Input) -> str:
    digest = given.content_digest if isinstance(given, ArtifactRef) else given.digest
    if not digest:
        raise FingerprintError(f"{verb}: input {role} has an empty digest; give the digest of its content")
    return digest
