"""Train the sizes of a curve together: the first cell trains them all, the others take theirs.

A tokenizer is the same whether it was trained alone or with others. In a process where nothing was trained
yet, a cell trains the sizes that it was told of, its own among them.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, TypeAlias

from tokmill.tasks.train.learning import learn

if TYPE_CHECKING:
    from tokmill.tasks.train.stage import TrainParams
    from tokmill.tokenizer import Tokenizer

_KEPT = 16  # curves whose tokenizers wait in memory; what is gone is trained again when it is wanted

_Key: TypeAlias = tuple[str, Path, Path]


@dataclass
class _Curve:
    """Tokenizers by size that nobody has taken yet; the lock is held while they are trained."""

    lock: Lock = field(default_factory=Lock)
    waiting: "dict[int, Tokenizer]" = field(default_factory=dict)

    def take(self, params: "TrainParams", counts: Path, balance: Path, sizes: Sequence[int]) -> "Tokenizer":
        with self.lock:
            if params.vocab_size not in self.waiting:
                learned = learn(params, counts, balance, sizes)
                self.waiting.update(zip(sizes, learned.tokenizers, strict=True))
            return self.waiting.pop(params.vocab_size)


_LOCK = Lock()
_CURVES: OrderedDict[_Key, _Curve] = OrderedDict()


def train_together(params: "TrainParams", counts: Path, balance: Path, sizes: Sequence[int]) -> "Tokenizer":
    """Return the tokenizer of `params`."""
    key = (params.model_dump_json(exclude={"vocab_size"}), counts, balance)
    with _LOCK:
        curve = _CURVES.setdefault(key, _Curve())
        _CURVES.move_to_end(key)
        while len(_CURVES) > _KEPT:
            _CURVES.popitem(last=False)
    return curve.take(params, counts, balance, sizes)
