"""The compiled tables of SentencePiece's named rules, in Unicode 16.

Files of their own, since NFKC of Python's `unicodedata` is that of its version. Each is what
`components.charsmap.compile_rules` makes of the rules in it; the tests compile them again.
"""

import lzma
from functools import lru_cache
from importlib.resources import files

from tokmill.tokenizer.core.errors import TokenizerError

IDENTITY = "identity"
RULE_NAMES = (IDENTITY, "nfkc", "nmt_nfkc", "nfkc_cf", "nmt_nfkc_cf")


@lru_cache(maxsize=len(RULE_NAMES))
def named_charsmap(name: str) -> bytes:
    """Return compiled rules by their name; none for `identity`.

    Raises:
        TokenizerError: the name is none of `RULE_NAMES`.
    """
    if name not in RULE_NAMES:
        raise TokenizerError(
            f"normalizer={name!r:.200} is not known with mode='sentencepiece'; use one of "
            f"{', '.join(RULE_NAMES)}"
        )
    if name == IDENTITY:
        return b""
    return lzma.decompress(files(__name__).joinpath(f"{name}.xz").read_bytes())
