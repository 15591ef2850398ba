"""Which profile a stage continues: that of the tokenizer's training if it has its texts, or a new one."""

from pathlib import Path
from typing import Any

from tokmill.flows.errors import UsageError
from tokmill.flows.library.bench import Bench, held_out
from tokmill.flows.library.columns import OnError, named_columns
from tokmill.flows.library.options import HoldoutOptions
from tokmill.flows.library.store import Store
from tokmill.flows.library.texts import sources_of
from tokmill.flows.library.training import TrainedTokenizer
from tokmill.tasks.store import Store as ArtifactStore
from tokmill.tasks.store.digest import digest_bytes
from tokmill.tokenizer import Tokenizer

_NAME_CHARS = 24


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
    return str(_saved(tok, folder))


def _saved(tok: Tokenizer, folder: Path) -> Path:
    """Write a tokenizer under the name of its content."""
    from tempfile import TemporaryDirectory  # noqa: PLC0415 - few need it

    with TemporaryDirectory(dir=folder, prefix=".tokenizer-") as unfinished:
        (file,) = tok.save(unfinished, format="tokmill")
        place = folder / f"{digest_bytes(file.read_bytes())[:_NAME_CHARS]}.tokmill.json"
        file.replace(place)
    return place
