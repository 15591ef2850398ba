"""What a changed vocabulary was changed by, and what that does to texts: `report.json` and `report.md`."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from tokmill.tasks.core.errors import SourceError
from tokmill.tasks.core.markdown import cell, percent, table
from tokmill.tasks.core.stage import WithOptional
from tokmill.tasks.formats.files.manifests import write_model
from tokmill.tasks.formats.text.detection import format_of
from tokmill.tasks.formats.text.documents import FileBatch
from tokmill.tasks.formats.text.readers import read_file_batches
from tokmill.tasks.formats.text.sources import ReadOptions
from tokmill.tasks.remote.location import located

if TYPE_CHECKING:
    from tokmill.tokenizer import Tokenizer


File = Mapping[str, Any]
_SHOWN = 100
_NAMED = 6


class Measured(BaseModel):
    """A file, and the tokens of its text before and after."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    num_bytes: int
    num_tokens_before: int
    num_tokens_after: int

    @property
    def saved(self) -> int:
        """Tokens that are saved; negative where there are more than before."""
        return self.num_tokens_before - self.num_tokens_after


def batches(file: File, options: ReadOptions) -> Iterator[FileBatch]:
    """Yield the documents of a file; a bad one is an error."""
    path = located(file["path"])
    for batch in read_file_batches(path, format_of(path, options), options):
        if batch.bad:
            bad = batch.bad[0]
            raise SourceError(
                f"{file['path']}: row {bad.row} is {bad.reason}; repair the file, or leave it out"
            )
        yield batch


def measure(
    before: "Tokenizer", after: "Tokenizer", file: File, options: ReadOptions
) -> tuple[Measured, NDArray[np.int64]]:
    """Encode a file with both tokenizers; return also how often each id occurs after: int64 [vocab_size]."""
    sizes, counts = np.zeros(3, dtype=np.int64), np.zeros(after.vocab_size, dtype=np.int64)
    for batch in batches(file, options):
        old_ids, new_ids = (
            tok.encode_buffers(batch.data, batch.offsets, as_text=True).ids for tok in (before, after)
        )
        sizes += (len(batch.data), len(old_ids), len(new_ids))
        counts += np.bincount(new_ids, minlength=after.vocab_size)
    names = ("num_bytes", "num_tokens_before", "num_tokens_after")
    return Measured(name=str(file["name"]), **dict(zip(names, sizes.tolist(), strict=True))), counts


def token_counts(tok: "Tokenizer", files: Sequence[File], options: ReadOptions) -> NDArray[np.uint64]:
    """Return how often each id occurs in files: uint64 [vocab_size]."""
    counts = np.zeros(tok.vocab_size, dtype=np.uint64)
    for file in files:
        for batch in batches(file, options):
            ids = tok.encode_buffers(batch.data, batch.offsets, as_text=True).ids
            counts += np.bincount(ids, minlength=tok.vocab_size).astype(np.uint64)
    return counts


class ChangedToken(WithOptional):
    """A token that was added or taken away."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    optional = frozenset({"term", "num_occurrences"})

    id: int  # in the vocabulary that has it
    text: str  # readable on one line
    parts: tuple[str, ...]  # what its text is encoded as without it
    term: str | None = None  # that it is a form of; None if it was found in the texts
    num_occurrences: int | None = None  # in the texts, of a token that was added; None without texts

    @property
    def saved(self) -> int:
        """Tokens of the texts that it saves: each place of it had a token for each of its parts."""
        return (self.num_occurrences or 0) * (len(self.parts) - 1)


class Report(BaseModel):
    """The content of `report.json`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    action: str  # what was done
    old_size: int
    new_size: int
    changed: list[ChangedToken]  # by id
    skipped: dict[str, str]  # terms that were not added, with the reason
    texts: list[Measured]  # that the change was made for
    others: list[Measured]

    @property
    def saved_by_term(self) -> dict[str, int]:
        """Tokens of the texts that all forms of each given term save, most first; empty without texts."""
        saved: dict[str, int] = {}
        for token in self.changed if self.texts else ():
            if token.term is not None:
                saved[token.term] = saved.get(token.term, 0) + token.saved
        return dict(sorted(saved.items(), key=lambda item: -item[1]))

    @property
    def warning(self) -> str:
        """Name the terms that save nothing; empty if all save something, or nothing was measured."""
        useless = [term for term, saved in self.saved_by_term.items() if not saved]
        if not useless:
            return ""
        more = f" and {len(useless) - _NAMED} more" if len(useless) > _NAMED else ""
        named = ", ".join(f"{term!r:.60}" for term in useless[:_NAMED])
        return (
            f"{len(useless)} of {len(self.saved_by_term)} terms save no token in the texts: {named}{more}. A "
            "term becomes one token only where the texts have it as a whole pre-token; in scripts without "
            "spaces the split pattern leaves it within a longer one. `--merges N` learns parts of pre-tokens"
        )

    def save(self, out: Path) -> None:
        """Write both files into a folder."""
        write_model(out / "report.json", self)
        (out / "report.md").write_text(self.to_markdown(), encoding="utf-8")

    def to_markdown(self) -> str:
        """The report for people."""
        sizes = f"{self.old_size:,} tokens before, {self.new_size:,} after."
        lines = [f"# Vocabulary: {self.action}", "", sizes]
        for title, files in (("Texts that it was made for", self.texts), ("Other texts", self.others)):
            lines += ["", f"## {title}", "", *_measures(files)] if files else []
        lines += ["", f"**Warning**: {self.warning}."] if self.warning else []
        counted = any(token.num_occurrences is not None for token in self.changed)
        shown = [_row(token, counted) for token in self.changed[:_SHOWN]]
        head = ("id", "token", "without it", *(("in the texts", "saved") if counted else ()))
        lines += ["", "## Tokens", "", *table(head, shown, left=(1, 2))]
        more = len(self.changed) - _SHOWN
        lines += ["", f"And {more:,} more, in `report.json`."] if more > 0 else []
        if self.skipped:
            lines += ["", "## Not added", "", *(f"- `{text}`: {why}" for text, why in self.skipped.items())]
        return "\n".join([*lines, ""])


def _row(token: ChangedToken, counted: bool) -> list[str]:
    parts = " ".join(f"`{cell(part)}`" for part in token.parts)
    amounts = [f"{token.num_occurrences or 0:,}", f"{token.saved:,}"] if counted else []
    return [str(token.id), f"`{cell(token.text)}`", parts, *amounts]


def _measures(files: Sequence[Measured]) -> list[str]:
    rows = []
    for file in files:
        amounts = (file.num_tokens_before, file.num_tokens_after, file.saved)
        share = percent(file.saved / max(1, file.num_tokens_before))
        rows.append([cell(file.name), *(f"{amount:,}" for amount in amounts), share])
    return table(("file", "tokens before", "after", "saved", "share"), rows)
