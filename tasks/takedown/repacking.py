"""Pack a mixture again without some documents, with the same stages and parameters."""

from collections.abc import Sequence

from tokmill.tasks.core.errors import TracingError
from tokmill.tasks.core.stage import External, Inputs, Request
from tokmill.tasks.formats.packed.plan import PackingPlan
from tokmill.tasks.formats.packed.takedown import TakedownManifest, TakenDocument
from tokmill.tasks.packing.stage import PACK, PACK_PLAN, PACK_SHARD
from tokmill.tasks.store.canonical import canonical_json
from tokmill.tasks.store.digest import digest_bytes
from tokmill.tasks.store.record import Record
from tokmill.tasks.store.store import Realized
from tokmill.tasks.takedown.exclude import EXCLUDE, ExcludeParams
from tokmill.tasks.tracing.origins import Origins


def repack(origins: Origins, documents: Sequence[TakenDocument]) -> Realized:
    """Publish a packing of the mixture without the documents, and without those taken down earlier.

    Raises:
        TracingError: the store lacks the plan of the packed artifact.
        StoreError: an artifact that it was made from is missing or damaged.
        MixingError, PackingError: no document is left to pack.
    """
    packed = _packing_of(origins)
    plan = origins.input_record(packed, "plan")
    name = origins.packed.name
    (encoded,), shards = plan.refs("encoded"), plan.refs("shards")
    tokens: Inputs = {"encoded": encoded, "shards": shards}
    everything = _with_earlier(origins, documents)
    without: Inputs = {**tokens, "mixture": origins.input_record(plan, "mixture").ref}
    realize = origins.store.realize
    mixture = realize(
        Request(EXCLUDE, name, ExcludeParams(), {**without, "documents": listed(everything)})
    ).ref
    planned = realize(
        Request(PACK_PLAN, name, PACK_PLAN.params(**plan.params), {**tokens, "mixture": mixture})
    ).ref
    written = PACK.params(**packed.params)
    parts = [
        realize(
            Request(
                PACK_SHARD, f"{name}.shard/{index}", written.shard_params(index), {**tokens, "plan": planned}
            )
        ).ref
        for index in range(PackingPlan.open(origins.store.path(planned)).num_shards)
    ]
    return realize(Request(PACK, name, written, {"plan": planned, "shards": parts}))


def listed(documents: Sequence[TakenDocument]) -> External:
    """Documents as the input of a stage; the digest depends on their order."""
    value = [document.model_dump() for document in documents]
    return External(digest=digest_bytes(canonical_json(value)), value=value)


def _packing_of(origins: Origins) -> Record:
    """The original packing, from which takedowns and exports made the other versions."""
    for version in origins.versions():
        if any(entry.role == "plan" for entry in version.inputs):
            return version
    raise TracingError(
        f"{origins.packed.reference} was not made from a packing plan, so it cannot be packed again"
    )


def _with_earlier(origins: Origins, documents: Sequence[TakenDocument]) -> list[TakenDocument]:
    """The documents, and those of earlier takedowns of the original packing."""
    taken = list(documents)
    for version in origins.versions():
        takedown = TakedownManifest.of(origins.store.path(version.ref))
        taken += takedown.documents if takedown else ()
    places = {(one.source, one.shard, one.ordinal): one for one in taken}
    return [places[key] for key in sorted(places)]
