"""`tokmill.train`: a tokenizer from columns of text."""

from pathlib import Path
from typing import Any

from tokmill.flows.library.artifact import Artifact
from tokmill.flows.library.bench import Bench, parted
from tokmill.flows.library.columns import OnError, named_columns
from tokmill.flows.library.texts import sources_of
from tokmill.tasks.balance.stage import BalanceParams
from tokmill.tasks.formats.tokenizer import open_tokenizer
from tokmill.tasks.store import Store as ArtifactStore
from tokmill.tasks.train.stage import TrainParams
from tokmill.tokenizer import Tokenizer
from tokmill.tokenizer.pipeline.definition import Definition


class TrainedTokenizer(Tokenizer):
    """A tokenizer that knows the artifact that it is from.

    It is equal to, and pickled as, the tokenizer alone.

    Attributes:
        artifact: the artifact, with its path and figures; None after a change, such as `with_roles`.
    """

    def __init__(self, definition: Definition, bench: Bench | None = None) -> None:
        super().__init__(definition)
        self.bench = bench

    @property
    def artifact(self) -> Artifact | None:
        """The artifact, with its path and figures; None after a change, such as `with_roles`."""
        return None if self.bench is None else self.bench.artifact

    @classmethod
    def of(cls, artifact: Artifact, bench: Bench | None = None) -> "TrainedTokenizer":
        """Open the tokenizer of an artifact, and check its attestation."""
        from tokmill.flows.library.store import opened  # noqa: PLC0415 - it imports this one

        tok = open_tokenizer(artifact.path)
        return cls(tok.definition, bench or Bench(opened(artifact.store), {}, artifact))


def train(
    texts: Any,
    *,
    vocab_size: int,
    store: str | Path | ArtifactStore | None = None,
    name: str = "notebook",
    on_error: OnError = "fail",
    workers: int | None = None,
    progress: bool | None = None,
    num_threads: int | None = None,
    **options: Any,
) -> TrainedTokenizer:
    """Train a tokenizer on a column of texts, or on several sources, as the pipeline does.

        tok = tokmill.train(df["text"], vocab_size=8_000)
        tok = tokmill.train({"web": web["text"], "code": code["text"]}, vocab_size=32_000, temperature=3.3)

    The texts are written to disk, counted by all cores, and balanced; memory grows with the distinct
    pre-tokens, not with the texts. `tokmill.tokenizer.train` is the algorithm alone, in memory.

    Args:
        texts: a column (pandas, polars, Arrow, numpy, list, or an iterable that is read once), or source →
            column.
        vocab_size: tokens in the vocabulary, special and reserved ones included.
        store: where the tokenizer is published, with what it was made from; without one, it lasts as long as
            the process, or until it is saved.
        name: of the artifacts in the store.
        on_error: what becomes of null rows: "fail", or "quarantine" to leave them out.
        workers: parallel tasks; by default one per core. It changes no result.
        progress: see `run`.
        num_threads: an older name of `workers`.
        **options: parameters of training (`family`, `split_pattern`, `special_tokens`, `normalizer`, …; see
            `tokmill profiles train`) and of balancing (`temperature`, `weights`, `method`,
            `max_repetition`). Special tokens are `<|endoftext|>` by default, as in profiles.

    Returns:
        The tokenizer; its `artifact` has figures and the folder with exports for other libraries.

    Raises:
        UsageError: a column is none, has a null row, or there is no such parameter.
        ProfileError: a parameter is invalid, or parameters contradict each other.
        RunError: too little text for `vocab_size`; the message has a feasible size.
    """
    training, balance = parted("train", options, TrainParams, BalanceParams)
    bench = Bench.of(store, name=name, train={"vocab_size": vocab_size, **training}, balance=balance)
    sources = sources_of(named_columns(texts), bench.store, on_error)
    made, done = bench.with_sections(sources=sources).made(
        "tokenizer", workers=workers or num_threads, progress=progress
    )
    return TrainedTokenizer.of(done["tokenizer"], made)
