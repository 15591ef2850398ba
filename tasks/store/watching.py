"""The collector's side of leases: it is announced, and knows what running work needs while it removes.

See `tasks.store.leases` for the protocol. A thread reads the leases every moment and acknowledges them, so
that runs do not wait for long. What a lease needed once is needed until the collector ends: the run may have
ended in between, and the collector's plan does not know yet what is kept since then, and why.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.store.layout import PREFIX_CHARS, Layout
from tokmill.tasks.store.leases import LeaseReader, Needs, announce, beat_announcement, withdraw
from tokmill.tasks.store.liveness import beating
from tokmill.tasks.store.publish import tidy
from tokmill.tasks.store.storage import STORAGE

_LOCK = "collector.lock"
_LOOK_SECONDS = 0.1


class Watch:
    """What running work needs; see `watching`.

    Attributes:
        mutex: held while leases are read and acknowledged, and while something is removed.
        needs: all that was needed by any lease that was seen, by key.
        num_changes: how often `needs` has changed.
    """

    def __init__(self, layout: Layout) -> None:
        self.mutex = threading.RLock()
        self.needs: dict[str, Needs] = {}
        self.num_changes = 0
        self._layout = layout
        self._reader = LeaseReader(layout)
        self._seen: dict[str, int] = {}
        self._held: dict[str, str] = {}
        self._ended = threading.Event()

    def look(self) -> None:
        """Read the leases, and acknowledge those that are new or changed.

        Raises:
            StoreError: the announcement cannot be written.
        """
        with self.mutex:
            found = self._reader.read()
            seen = {key: needs.number for key, needs in found.items()}
            for key, needs in found.items():
                if self._seen.get(key) != needs.number:
                    self._take(key, needs)
            if seen != self._seen:
                announce(self._layout, seen)
                self._seen = seen

    def _take(self, key: str, needs: Needs) -> None:
        before = self.needs.get(key, needs)
        self._held.update(dict.fromkeys(needs.holds or (), key))
        holds = None if before.holds is None or needs.holds is None else sorted({*before.holds, *needs.holds})
        self.needs[key] = needs.model_copy(update={"holds": holds})
        self.num_changes += 1

    def holder(self, fingerprint: str) -> str | None:
        """Return the lease that holds an artifact by its fingerprint, if any."""
        everything = (key for key, needs in self.needs.items() if needs.holds is None)
        return self._held.get(fingerprint[:PREFIX_CHARS]) or next(everything, None)

    @contextmanager
    def unless_held(self, fingerprint: str) -> Iterator[bool]:
        """Look again, and yield whether an artifact is held; no lease is acknowledged in the block."""
        with self.mutex:
            self.look()
            yield self.holder(fingerprint) is not None

    def keep_looking(self) -> None:
        """Look every moment until `end`."""
        while not self._ended.wait(_LOOK_SECONDS):
            with suppress(StoreError, OSError):  # the remover itself reports it
                self.look()

    def end(self) -> None:
        """End `keep_looking`."""
        self._ended.set()


@contextmanager
def watching(layout: Layout) -> Iterator[Watch]:
    """Be the collector of a store in this block; there is one at a time.

    Raises:
        StoreError: another one is at work, or it cannot be announced.
    """
    lock = STORAGE.lock(layout.locks / _LOCK)
    if not lock.try_acquire():
        raise StoreError(f"{lock.owner()} removes artifacts of {layout.root}; wait until that has ended")
    watch = Watch(layout)
    looking = threading.Thread(target=watch.keep_looking, name="watching leases", daemon=True)
    try:
        announce(layout, {})
        watch.look()
        looking.start()
        with beating(lambda: beat_announcement(layout), "heartbeat of the collector"):
            yield watch
    finally:
        watch.end()
        if looking.is_alive():
            looking.join()
        withdraw(layout)
        lock.release()
        tidy(layout)
