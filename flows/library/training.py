"""`tokmill.train`: a tokenizer from columns of text; and the profile in which a tokenizer works on texts."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Unpack

from tokmill.flows.errors import UsageError
from tokmill.flows.library.artifact import Artifact
from tokmill.flows.library.bench import Bench, held_out, parted
from tokmill.flows.library.columns import OnError, named_columns
from tokmill.flows.library.options import HoldoutOptions, TrainingOptions
from tokmill.flows.library.store import Store, opened
from tokmill.flows.library.texts import sources_of
from tokmill.tasks.balance.stage import BalanceParams
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.encode.stage import EncodeParams
from tokmill.tasks.formats.tokenizer import open_tokenizer
from tokmill.tasks.store import Store as ArtifactStore
from tokmill.tasks.store.fingerprint import digest_bytes
from tokmill.tasks.store.runs import read_run, run_path
from tokmill.tasks.train.stage import TrainParams
from tokmill.tokenizer import Tokenizer
from tokmill.tokenizer.components.post_processors import Template
from tokmill.tokenizer.pipeline.definition import Definition

_NAME_CHARS = 24


class TrainedTokenizer(Tokenizer):
    """A tokenizer that knows the artifact that it is from.

    It is equal to the tokenizer alone. `add_special_tokens` adds the tokens of its template; without one,
    those that `[encode]` of its run adds, so that the ids are those of `tokmill.encode`.

    Attributes:
        artifact: the artifact, with its path and figures; None after a change, such as `with_roles`.
    """

    def __init__(
        self, definition: Definition, bench: Bench | None = None, around: Template | None = None
    ) -> None:
        super().__init__(definition)
        self.bench = bench
        self._around = around

    @property
    def artifact(self) -> Artifact | None:
        """The artifact, with its path and figures; None after a change, such as `with_roles`."""
        return None if self.bench is None else self.bench.artifact

    @classmethod
    def of(cls, artifact: Artifact, bench: Bench | None = None) -> "TrainedTokenizer":
        """Open the tokenizer of an artifact, and check its attestation."""
        definition = open_tokenizer(artifact.path).definition
        encode = _encoding_of(artifact) if bench is None else bench.table.get("encode", {})
        around = _around(encode, definition.named_tokens)
        return cls(definition, bench or Bench(opened(artifact.store), {}, artifact), around)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what decides the ids; the artifact is left behind."""
        return _unpickled, (self.spec(), self._around)

    @property
    def _template(self) -> Template | None:
        return self.definition.post_processor or self._around


def _unpickled(spec: Mapping[str, Any], around: Template | None) -> TrainedTokenizer:
    return TrainedTokenizer(Definition.from_spec(spec), around=around)


def _encoding_of(artifact: Artifact) -> Mapping[str, Any]:
    """Return `[encode]` of the run that made a tokenizer; empty if there is none."""
    run_id = artifact.record.provenance.run_id or ""
    try:
        run = read_run(run_path(artifact.store.layout.runs, run_id))
    except StoreError:
        return {}
    encode = run.parameters.get("encode", {})
    return {"begin_of_document": None, "end_of_document": None, **encode}  # what is None is not recorded


def _around(encode: Mapping[str, Any], tokens: Mapping[str, int]) -> Template | None:
    """Return the tokens around documents as a template; None if there are none."""
    names = (
        encode.get(name, getattr(EncodeParams(), name)) for name in ("begin_of_document", "end_of_document")
    )
    begin, end = ([name] if name in tokens else [] for name in names)
    return Template.around_each(begin, end) if begin or end else None


def train(
    texts: Any,
    *,
    vocab_size: int,
    store: str | Path | ArtifactStore | None = None,
    name: str = "notebook",
    on_error: OnError = "fail",
    workers: int | None = None,
    progress: bool | None = None,
    holdout: float | HoldoutOptions | None = None,
    **options: Unpack[TrainingOptions],
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
        holdout: which documents are kept from training, for validation: a share, or the parameters of
            `[holdout]`; by default none.
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
    bench = bench.with_sections(holdout=held_out(holdout))
    sources = sources_of(named_columns(texts), bench.store, on_error)
    made, done = bench.with_sections(sources=sources).made("tokenizer", workers=workers, progress=progress)
    return TrainedTokenizer.of(done["tokenizer"], made)


def bench_for(
    tok: Tokenizer | str | Path,
    texts: Any,
    *,
    store: str | Path | ArtifactStore | None,
    name: str | None,
    on_error: OnError,
    holdout: float | HoldoutOptions | None = None,
) -> Bench:
    """Return the profile in which a tokenizer works on texts.

    Args:
        tok: a tokenizer, the path of one, or the name of an artifact.
        texts: a column, or source → column; None for those that the tokenizer was trained on.
        store: where artifacts are; by default where the tokenizer was trained, else the temporary store.
        name: of the artifacts; by default that of the training.
        on_error: see `texts.sources_of`.
        holdout: see `bench.held_out`; by default that of the training.

    Raises:
        UsageError: there are no texts, or a column is none.
    """
    trained = tok.bench if isinstance(tok, TrainedTokenizer) and tok.bench and tok.bench.table else None
    bench = trained if store is None and trained is not None else Bench.of(store, name="notebook")
    if texts is None:
        if trained is None:
            raise UsageError("texts: this tokenizer was not trained by tokmill.train here; name the texts")
        sources = trained.table["sources"]
    else:
        sources = sources_of(named_columns(texts), bench.store, on_error)
    named = {} if name is None else {"name": name}
    held = {} if holdout is None else {"holdout": held_out(holdout)}
    if (
        trained is not None
        and sources == trained.table["sources"]
        and bench.store.location == trained.store.location
    ):
        return trained.with_sections(**named, **held)
    used = {"use": _use(tok, bench.store)}
    own = name or bench.table["name"]
    return Bench(bench.store, {"name": own, "sources": sources, "tokenizer": used, **held})


def _use(tok: Tokenizer | str | Path, store: Store) -> str:
    """Return how a profile names a tokenizer; one in memory is written beside the store first."""
    if not isinstance(tok, Tokenizer):
        return str(tok)
    artifact = tok.artifact if isinstance(tok, TrainedTokenizer) else None
    if artifact is not None:
        if artifact.store.location == store.location:
            return artifact.ref.fingerprint
        return str(artifact.path)
    folder = store.layout.texts
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder, prefix=".tokenizer-") as unfinished:
        (file,) = tok.save(unfinished, format="tokmill")
        place = folder / f"{digest_bytes(file.read_bytes())[:_NAME_CHARS]}.tokmill.json"
        file.replace(place)
    return str(place)
