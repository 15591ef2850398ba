"""Loading: packed sequences as numpy batches, at memory speed, for any number of ranks and workers.

from tokmill.tasks.loading import PackedDataset

dataset = PackedDataset("tokmill-store/packed/…", batch_size=8, rank=rank, world_size=world_size)
for batch in dataset:
    batch["input_ids"]
"""

from tokmill.tasks.loading.batches import Batch, Field
from tokmill.tasks.loading.dataset import PackedDataset
from tokmill.tasks.loading.split import Remainder

__all__ = ["Batch", "Field", "PackedDataset", "Remainder"]
