"""Make what is not in the store, while no other process does.

The lock of the fingerprint is taken, the store is looked at again, since whoever had the lock may have made
it, and the stage is run.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tokmill.tasks.core.stage import ArtifactRef, How, Request
from tokmill.tasks.store.indexing import Report
from tokmill.tasks.store.integrity import Verify
from tokmill.tasks.store.layout import Layout
from tokmill.tasks.store.provenance import Provenance
from tokmill.tasks.store.publish import handed_over, make
from tokmill.tasks.store.shelf import Shelf
from tokmill.tasks.store.storage import holding
from tokmill.tasks.store.tombstones import tombstone


@dataclass(frozen=True)
class Realized:
    """The result of `realize`: the artifact, and whether it was made, found, or waited for."""

    ref: ArtifactRef
    how: How

    @property
    def cached(self) -> bool:
        """Whether it was not made by this call."""
        return self.how != "made"


@dataclass(frozen=True)
class Maker:
    """Makes the artifacts of a store.

    Attributes:
        layout: the store.
        shelf: its places.
        arriving: returns the directory of an input, whose files may be fetched when they are opened.
    """

    layout: Layout
    shelf: Shelf
    arriving: Callable[[ArtifactRef], Path]

    def realized_alone(
        self,
        request: Request,
        owner: str,
        provenance: Provenance | None,
        say: Report,
        verify: Verify,
        *,
        refresh: bool,
    ) -> Realized:
        """Make the artifact while no other process does, unless one has made it by now.

        Args:
            request: the request of the artifact.
            owner: its fingerprint.
            provenance: by whom and for which run; by default that of this process.
            say: receives a line about damage, a wait, or a removal.
            verify: whether files of what is found are compared by size or by digest.
            refresh: make it although it is there.

        Raises:
            Exception: as `Store.realize`.
        """
        waited_for = list[str]()

        def wait(who: str) -> None:
            waited_for.append(who)
            say(f"{request.stage.kind}/{request.name} is being made by {who}; waiting for it")

        with holding(self.shelf.lock(request.stage.kind, owner), wait):
            found = self.shelf.find(request, owner, verify, say, owned=True)
            if found is not None and not refresh:
                return Realized(found, "waited" if waited_for else "cached")
            if left := tombstone(self.layout, request.stage.kind, owner):
                say(f"{left.record.reference} was removed on {left.removed[:10]}, and is made again")
            return self._made(request, provenance or Provenance.collect(), say, found)

    def _made(
        self, request: Request, provenance: Provenance, say: Report, found: ArtifactRef | None
    ) -> Realized:
        """Make the artifact; its inputs are kept in the cache as long as that takes."""
        replaced = None if found is None else partial(self.shelf.set_aside_replaced, found, say)
        with handed_over(request.inputs, self.arriving, self.shelf.set_aside_unfetched) as inputs:
            made = make(self.layout, request, inputs, provenance, replaced)
        if made.is_first:
            return Realized(made.record.ref, "made")
        say(f"{made.record.reference} was published by another machine first; that one is used")
        return Realized(made.record.ref.model_copy(update={"name": request.name}), "waited")
