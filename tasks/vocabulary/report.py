"""What a changed vocabulary was changed by, and what that does to texts: `report.json` and `report.md`."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from tokmill.tasks.core.markdown import cell, table
from tokmill.tasks.formats.files.manifests import write_model
from tokmill.tasks.vocabulary.measuring import Measured

_SHOWN = 100


class ChangedToken(BaseModel):
    """A token that was added or taken away.

    Attributes:
        id: its id, in the vocabulary that has it.
        text: readable on one line.
        parts: what its text is encoded as without it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: int
    text: str
    parts: tuple[str, ...]


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
        shown = [
            [str(token.id), f"`{cell(token.text)}`", " ".join(f"`{cell(part)}`" for part in token.parts)]
            for token in self.changed[:_SHOWN]
        ]
        lines += ["", "## Tokens", "", *table(("id", "token", "without it"), shown, left=(1, 2))]
        more = len(self.changed) - _SHOWN
        lines += ["", f"And {more:,} more, in `report.json`."] if more > 0 else []
        if self.skipped:
            lines += ["", "## Not added", "", *(f"- `{text}`: {why}" for text, why in self.skipped.items())]
        return "\n".join([*lines, ""])


def _measures(files: Sequence[Measured]) -> list[str]:
    rows = [
        [
            cell(file.name),
            f"{file.num_tokens_before:,}",
            f"{file.num_tokens_after:,}",
            f"{file.saved:,}",
            f"{file.saved / max(1, file.num_tokens_before):.2%}",
            f"{file.num_tokens_before / max(1, file.num_words):.4f}",
            f"{file.num_tokens_after / max(1, file.num_words):.4f}",
        ]
        for file in files
    ]
    head = ("file", "tokens before", "after", "saved", "share", "tokens per word before", "after")
    return table(head, rows)
