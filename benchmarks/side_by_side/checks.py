"""Whether a result is right. A time counts only after this has said so."""

from collections.abc import Sequence
from typing import Any, Protocol

from side_by_side.outcomes import Verdict

_COMPRESSION_TOLERANCE = 0.01  # other tie rules move bytes per token by far less than this
_NO_MORE_LOST = 0.001  # of tokens unknown, as a difference of shares
_NOT_WORSE = 0.005  # of bytes per token on held-out text


class Check(Protocol):
    """Judges what sides made; the reference side comes first and is what the others are held to."""

    reference: str

    def judge(self, side: str, evidence: dict[str, Any]) -> Verdict:
        """Say whether a side's result is right."""


class SameDocuments:
    """Every document must have the very ids (or cuts) that the reference gives it.

    Evidence: "documents", a digest of each document's result, in order.
    """

    def __init__(self, reference: str, what: str) -> None:
        self.reference = reference
        self._what = what
        self._expected: list[str] | None = None

    def judge(self, side: str, evidence: dict[str, Any]) -> Verdict:
        """Compare document by document; the reference's first result is what it is held to itself."""
        found = list(evidence["documents"])
        if self._expected is None and side == self.reference:
            self._expected = found
        if self._expected is None:
            return Verdict(False, f"{self._what} not checked: {self.reference} gave none")
        if len(found) != len(self._expected):
            return Verdict(False, f"{len(found)} documents of {len(self._expected)}")
        others = [i for i, (mine, its) in enumerate(zip(found, self._expected, strict=True)) if mine != its]
        if others:
            return Verdict(
                False,
                f"other {self._what} than {self.reference} in {len(others):,} of {len(found):,} documents, "
                f"first in document {others[0]}",
            )
        return Verdict(True, "the reference" if side == self.reference else f"all {self._what} equal")


class SameMerges:
    """The merges must be the reference's, one by one, for sides that break ties as it does.

    For others that cannot be asked. They must give as many tokens, and, if they cut text as the reference
    does, compress text as well as it does; how much they have in common is said.

    Evidence: "tokens", what was merged, in order (hexadecimal); "merges", pairs of the same, or None if the
    side does not tell them; "bytes_per_token" on the beginning of the text.
    """

    def __init__(self, reference: str, same_ties: Sequence[str], own_cuts: Sequence[str] = ()) -> None:
        self.reference = reference
        self._same_ties = {reference, *same_ties}
        self._own_cuts = set(own_cuts)
        self._expected: dict[str, Any] | None = None

    def judge(self, side: str, evidence: dict[str, Any]) -> Verdict:
        """Compare merges, or what can be compared."""
        if self._expected is None and side == self.reference:
            self._expected = evidence
        if self._expected is None:
            return Verdict(False, f"merges not checked: {self.reference} gave none")
        if side in self._same_ties:
            return self._equal(side, evidence)
        return self._alike(side, evidence, self._expected)

    def _equal(self, side: str, evidence: dict[str, Any]) -> Verdict:
        assert self._expected is not None
        found, wanted = evidence["merges"], self._expected["merges"]
        if found == wanted:
            equal = f"all {len(wanted):,} merges equal"
            return Verdict(True, "the reference" if side == self.reference else equal)
        place = next((i for i, pair in enumerate(wanted) if found[i : i + 1] != [pair]), len(wanted))
        where = f"from merge {place:,} of {len(wanted):,} on"
        return Verdict(False, f"other merges than {self.reference}, {where}")

    def _alike(self, side: str, evidence: dict[str, Any], expected: dict[str, Any]) -> Verdict:
        found, wanted = evidence["tokens"], expected["tokens"]
        share = len(set(found) & set(wanted)) / max(len(wanted), 1)
        change = evidence["bytes_per_token"] / expected["bytes_per_token"] - 1
        says = f"{share:.2%} of tokens in common, {change:+.2%} bytes per token"
        if side in self._own_cuts:
            return Verdict(bool(found), f"other work, as it cuts text its own way: {says}", same_work=False)
        if len(found) != len(wanted):
            return Verdict(False, f"{len(found):,} tokens instead of {len(wanted):,}; {says}")
        pairs = enumerate(zip(found, wanted, strict=True))
        first = next((i for i, (mine, its) in pairs if mine != its), len(wanted))
        right = abs(change) <= _COMPRESSION_TOLERANCE
        return Verdict(right, f"another tie rule: the first {first:,} tokens equal, {says}")


class SamePieces:
    """Pieces must compress held-out text as well as the reference's; how many are common to both is said.

    Evidence: "pieces"; "bytes_per_token" on text that was held out; "unknown", the share of its tokens that
    stand for text which is lost, and so would be cheap.
    """

    def __init__(self, reference: str) -> None:
        self.reference = reference
        self._expected: dict[str, Any] | None = None

    def judge(self, side: str, evidence: dict[str, Any]) -> Verdict:
        """Compare compression, and say how many pieces are common."""
        if self._expected is None and side == self.reference:
            self._expected = evidence
        if self._expected is None:
            return Verdict(False, f"pieces not checked: {self.reference} gave none")
        found, wanted = set(evidence["pieces"]), set(self._expected["pieces"])
        change = evidence["bytes_per_token"] / self._expected["bytes_per_token"] - 1
        if side == self.reference:
            return Verdict(True, f"the reference: {len(wanted):,} pieces")
        share = len(found & wanted) / max(len(found), 1)
        says = f"{share:.2%} of {len(found):,} pieces in common, {change:+.2%} bytes per token"
        if evidence["unknown"] or self._expected["unknown"]:
            says += f", {evidence['unknown']:.2%} unknown (theirs {self._expected['unknown']:.2%})"
        lost = evidence["unknown"] - self._expected["unknown"]
        return Verdict(change >= -_NOT_WORSE and lost <= _NO_MORE_LOST, says)
