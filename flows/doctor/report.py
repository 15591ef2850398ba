"""What a part of the examination returns."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tokmill.flows.server.findings import Finding


@dataclass
class Part:
    """Facts and findings about one subject.

    Attributes:
        title: the subject, e.g. `store`.
        facts: name → text for people.
        figures: name → value, for `--json`.
        findings: what is wrong, or worth knowing.
    """

    title: str
    facts: dict[str, str] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def note(self, key: str, what: str, fix: str) -> None:
        """Add advice."""
        self.findings.append(Finding(f"{self.title} {key}", what, fix, fails=False))

    def fail(self, key: str, what: str, fix: str) -> None:
        """Add something that does not work."""
        self.findings.append(Finding(f"{self.title} {key}", what, fix))

    def to_json(self) -> Mapping[str, Any]:
        """Return the figures."""
        return self.figures
