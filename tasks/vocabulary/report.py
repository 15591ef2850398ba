"""What a changed vocabulary was changed by, and what that does to texts: `report.json` and `report.md`."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from tokmill.tasks.core.markdown import cell, percent, table
from tokmill.tasks.core.optional import WithOptional
from tokmill.tasks.formats.files.manifests import write_model
from tokmill.tasks.vocabulary.measuring import Measured

_SHOWN = 100
_NAMED = 6


class ChangedToken(WithOptional):
    """A token that was added or taken away.

    Attributes:
        id: its id, in the vocabulary that has it.
        text: readable on one line.
        parts: what its text is encoded as without it.
        term: the term that it is a form of; None if it was found in the texts.
        num_occurrences: of a token that was added, how often it occurs in the texts; None without texts.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    optional = frozenset({"term", "num_occurrences"})

    id: int
    text: str
    parts: tuple[str, ...]
    term: str | None = None
    num_occurrences: int | None = None

    @property
    def saved(self) -> int:
        """Tokens of the texts that it saves: each place of it had a token for each of its parts."""
        return (self.num_occurrences or 0) * (len(self.parts) - 1)


class Report(BaseModel):
    """The content of `report.json`.

    Attributes:
        action: what was done.
        changed: the tokens that were added or taken away, by id.
        skipped: terms that were not added, with the reason.
        texts: the texts that the change was made for.
        others: all other texts.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    action: str
    old_size: int
    new_size: int
    changed: list[ChangedToken]
    skipped: dict[str, str]
    texts: list[Measured]
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
    rows = [
        [
            cell(file.name),
            f"{file.num_tokens_before:,}",
            f"{file.num_tokens_after:,}",
            f"{file.saved:,}",
            percent(file.saved / max(1, file.num_tokens_before)),
        ]
        for file in files
    ]
    head = ("file", "tokens before", "after", "saved", "share")
    return table(head, rows)
