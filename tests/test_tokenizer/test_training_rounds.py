"""Training with little room, few buckets, short slices and narrow limits: no merge depends on any of them."""

import base64
import random

import pytest

from tokmill import tokenizer
from tokmill.tokenizer import PretokenCounts
from tokmill.tokenizer.core import stopping
from tokmill.tokenizer.merging import layout, trainer
from tokmill.tokenizer.merging.rules import MergeRules
from tokmill.tokenizer.merging.trainer import BpeTrainer
from tokmill.tokenizer.reference import byte_bpe as reference


def trained(
    counts: dict[bytes, int], num_merges: int, room: int | None = None, max_narrow: int | None = None
) -> list[tuple[bytes, bytes]]:
    limits = {} if max_narrow is None else {"max_narrow": max_narrow}
    trainer = BpeTrainer(PretokenCounts.from_dict(counts), MergeRules(), num_merges, room, **limits)
    trainer.run(num_merges)
    return trainer.merges()


def random_counts(seed: int) -> dict[bytes, int]:
    """So many different pairs in so few buckets that a round needs more room than it was given at first."""
    dice = random.Random(seed)
    return {bytes(dice.randrange(256) for _ in range(10)): dice.choice(range(8, 16)) for _ in range(185)}


@pytest.mark.parametrize("seed", range(8))
def test_a_round_that_needs_more_room_for_pairs_makes_the_right_merges(seed: int) -> None:
    counts = random_counts(seed)
    assert trained(counts, 25) == reference.train_merges(counts, 25)


def test_a_shorter_training_is_a_prefix_where_rounds_need_more_room() -> None:
    dice = random.Random(3)
    counts = {base64.b64encode(dice.randbytes(30)): 1 + dice.randrange(3) for _ in range(2000)}
    longer = trained(counts, 8000)
    assert len(longer) == 8000
    for number in (1, 60, 1000, 4000):
        assert trained(counts, number) == longer[:number]


@pytest.mark.parametrize("buckets", [1, 2, 16, 256])
@pytest.mark.parametrize("room", [1, 100, None])
def test_few_buckets_make_the_same_merges(
    buckets: int, room: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer, "_num_buckets", lambda _num_cells: buckets)
    monkeypatch.setattr(trainer, "_LEAST_ROOM", 1)
    counts = random_counts(1)
    assert trained(counts, 30, room, max_narrow=265) == reference.train_merges(counts, 30)


@pytest.mark.parametrize("size", [1, 2, 7, 184, 185, 186])
def test_where_slices_end_changes_no_merge(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = random_counts(2)
    whole = trained(counts, 300)
    monkeypatch.setattr(trainer, "_CELLS_A_SLICE", size)
    monkeypatch.setattr(trainer, "_PLACES_A_SLICE", size)
    monkeypatch.setattr(layout, "_WORDS_A_SLICE", size)
    assert trained(counts, 300) == whole


def test_a_training_stops_on_request_and_goes_on_where_it_was() -> None:
    counts = random_counts(2)
    trainer = BpeTrainer(PretokenCounts.from_dict(counts), MergeRules(), 300)
    trainer.run(100)
    stopping.request_stop()
    try:
        with pytest.raises(stopping.StopRequested):
            trainer.run(300)
        with pytest.raises(stopping.StopRequested):
            tokenizer.train(["the fox"], vocab_size=257)
    finally:
        stopping.allow_work()
    assert trainer.run(300) == 300
    assert trainer.merges() == trained(counts, 300)
