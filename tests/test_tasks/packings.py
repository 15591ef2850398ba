"""Small packed artifacts for those who read them, and what was read."""

import shutil

from tests.test_tasks.fabricated import encoded_corpus, mix_corpus, numbered, pack_mixture
from tokmill.tasks.core.stage import Outcome, Params, Request, Stage
from tokmill.tasks.store import Store

FIELDS = ("input_ids", "position_ids", "segment_ids", "loss_mask", "labels", "cu_seqlens")
LENGTHS = [5, 30, 2, 9, 9, 17, 3, 1, 1, 1, 25, 8, 16, 7, 12, 40, 6, 6, 4, 21] * 2


def packed_folder(folder, lengths=LENGTHS, vocab_size=256, **params):
    corpus = encoded_corpus(
        folder / "corpus", {"a": [numbered(lengths, vocab_size=vocab_size)]}, vocab_size=vocab_size
    )
    options = {"sequence_length": 16, "strategy": "greedy", "sequences_per_shard": 7} | params
    return pack_mixture(corpus, mix_corpus(corpus, folder), folder, **options)[1]


def sequences(batches):
    return [number for batch in batches for number in batch["sequence"].tolist()]


def published(packed, root, kind="packed"):
    """Publish a directory in the store `root`, as it is; gives its place there."""

    def run(params, *, out):
        shutil.copytree(packed, out, dirs_exist_ok=True)
        return Outcome(metrics={})

    stage = Stage(verb="copy", task="copy", kind=kind, version=1, params=Params, run=run)
    store = Store.open(root)
    return store.path(store.realize(Request(stage, "copied", Params(), {})).ref)
