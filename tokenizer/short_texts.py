"""Encode short texts without a kernel, one at a time, as in a notebook.

Calling a kernel costs tens of microseconds, more than a short text takes. So `regex` cuts the text (the
pattern is the same, and so are the pre-tokens), and a dictionary has the ids of the pre-tokens that were seen
before.
Law: the ids are those of the kernels. Other cases (a special token in the text, a chain of
    expressions, a normalizer, a lone surrogate, a stretch that nothing matches) are left to the kernels.
"""

from collections.abc import Callable, Iterable

from tokmill.tokenizer.splitting import Splitter
from tokmill.tokenizer.splitting.fallback import compile_regex

MOST_CHARS = 256  # of a text; longer ones are faster by kernel
_MOST_KNOWN = 1 << 16  # pre-tokens; then a new dictionary is started


class ShortTexts:
    """Encodes short texts; threads may share it."""

    def __init__(
        self,
        splitter: Splitter,
        normalizer: str | None,
        special_tokens: Iterable[str],
        encode: Callable[[bytes], list[int]],
    ) -> None:
        """Remember how to encode the bytes of one pre-token."""
        self._specials = tuple(special_tokens)
        shared = set(self._specials[0]).intersection(*self._specials) if self._specials else set[str]()
        self._mark = min(shared, default="")  # a character that every special token has
        compiled = compile_regex(splitter.chain[0])
        self._usable = len(splitter.chain) == 1 and normalizer is None and not compiled.groups
        self._cut = compiled.findall
        self._encode = encode
        self._known: dict[str, list[int]] = {}

    def encode(self, text: object) -> list[int] | None:
        """Return the ids of a text, or None if the kernels have to encode it."""
        if not self._usable or type(text) is not str or len(text) > MOST_CHARS or self._needs_care(text):
            return None
        pretokens = self._cut(text)
        if sum(map(len, pretokens)) != len(text):
            return None
        ids: list[int] = []
        known = self._known
        try:
            for pretoken in pretokens:
                ids += known[pretoken]
        except KeyError:
            return self._learn(pretokens)
        return ids

    def _needs_care(self, text: str) -> bool:
        """Whether a text holds a special token, or a surrogate."""
        if self._mark in text and any(name in text for name in self._specials):
            return True
        if text.isascii():
            return False
        try:
            text.encode()
        except UnicodeEncodeError:
            return True
        return False

    def _learn(self, pretokens: list[str]) -> list[int]:
        """Encode pre-tokens, some of them for the first time."""
        known = self._known if len(self._known) < _MOST_KNOWN else {}
        ids: list[int] = []
        for pretoken in pretokens:
            found = known.get(pretoken)
            if found is None:
                found = known[pretoken] = self._encode(pretoken.encode())
            ids += found
        self._known = known
        return ids
