"""The dataset for PyTorch: an `IterableDataset` of tensors. Importing this module imports torch.

A `DataLoader` takes it with `batch_size=None`, because it yields whole batches, and with any number of worker
processes: each makes its share of the batches, and the loader takes them in turn, so that the order is that
of one process. A batch costs far less to make than to hand to another process; one process is usually enough.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

from tokmill.tasks.core.errors import LoadingError
from tokmill.tasks.kernels.documents import COPIES

if TYPE_CHECKING:
    from tokmill.tasks.loading.dataset import PackedDataset

torch: Any = import_module("torch")
Tensors: TypeAlias = dict[str, Any]


class TorchDataset(torch.utils.data.IterableDataset):  # type: ignore[misc]
    """Batches of a `PackedDataset` as tensors, `max_seqlen` as an int, and `bounds` as they are.

    With the worker processes of a `DataLoader`, copies iterate the epoch, and this object keeps its place:
    call `set_epoch` before every epoch, and `state_dict(num_batches)` with the number of batches taken in it.
    Without that number it refuses, since it cannot know how many of the workers' batches were taken.

    Attributes:
        dataset: the numpy batches.
    """

    def __init__(self, dataset: "PackedDataset") -> None:
        super().__init__()
        self.dataset = dataset
        self._at_work: PackedDataset | None = None
        self._num_workers = torch.zeros(1, dtype=torch.int64).share_memory_()  # which iterate copies, now
        COPIES[2, 2].ready()  # numba is loaded once, and not by every worker that is forked

    def __len__(self) -> int:
        """Number of batches of this rank in a whole epoch."""
        return len(self.dataset)

    def __iter__(self) -> Iterator[Tensors]:
        worker = torch.utils.data.get_worker_info()
        if worker is None:
            yield from map(_tensors, self.dataset)
            return
        self._num_workers.fill_(worker.num_workers)
        self._at_work = self._at_work or self.dataset.for_worker(worker.id, worker.num_workers)
        yield from map(_shared, map(_tensors, self._at_work))

    def set_epoch(self, epoch: int) -> None:
        """Go to the beginning of an epoch; does nothing if it is the current one."""
        self._num_workers.zero_()
        self.dataset.set_epoch(epoch)

    def state_dict(self, num_batches: int | None = None) -> dict[str, Any]:
        """The place to resume from; in a worker process, that of its own copy.

        Raises:
            LoadingError: worker processes make the batches, and `num_batches` is not given.
        """
        num_workers = int(self._num_workers)
        if num_workers and num_batches is None and self._at_work is None:
            raise LoadingError(
                f"loading: {num_workers} worker processes make the batches, and which of them were taken is "
                "known to the loop alone; pass state_dict(num_batches=n) for n batches of this epoch, or use "
                "num_workers=0, or torchdata's StatefulDataLoader"
            )
        return (self._at_work or self.dataset).state_dict(num_batches)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to the place of a state."""
        self._num_workers.zero_()
        self.dataset.load_state_dict(state)
        self._at_work = None


def _tensors(batch: Mapping[str, Any]) -> Tensors:
    return {name: _tensor(values) for name, values in batch.items()}


def _tensor(values: Any) -> Any:
    if isinstance(values, list):
        return values  # bounds
    return torch.from_numpy(values) if values.ndim else values.item()


def _shared(batch: Tensors) -> Tensors:
    """The same in one piece of shared memory, as a `DataLoader` pays for every piece that workers pass on."""
    tensors = [(name, value) for name, value in batch.items() if isinstance(value, torch.Tensor)]
    tensors.sort(key=lambda named: -named[1].itemsize)  # which aligns all
    memory = torch.cat([values.reshape(-1).view(torch.uint8) for _, values in tensors]).share_memory_()
    parts = memory.split([values.nbytes for _, values in tensors])
    pairs = zip(tensors, parts, strict=True)
    return batch | {name: part.view(values.dtype).view(values.shape) for (name, values), part in pairs}
