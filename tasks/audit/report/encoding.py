"""What the page needs to encode text as a tokenizer does: its spec, in a form that JavaScript runs exactly.

Law: the page's ids are those of `Tokenizer.encode`, or it gives none and says why. `static/encoder.js` is the
other half; the tests run both on the same texts.
"""

from typing import Any

from tokmill.tasks.audit.report.expressions import to_javascript
from tokmill.tasks.audit.report.normalizing import NotInPageError, steps_for
from tokmill.tokenizer import Tokenizer
from tokmill.tokenizer.core.errors import PatternError

FAMILIES = frozenset(
    {
        *("byte_bpe", "char_bpe", "word_bpe", "wordpiece", "unigram", "longest_match"),
        *("word_level", "character_level"),
    }
)
_NOT_NEEDED = ("chat_templates", "roles", "template", "unicode", "decoder", "normalizer", "split_chain")


def encoder_of(tok: Tokenizer) -> dict[str, Any]:
    """Return a tokenizer as data for the page's encoder, or why the page cannot encode with it.

    Returns:
        The spec (`Definition.to_spec`), with the normalizer as `steps` and the split pattern as `split`; or
        `refused`, a reason.
    """
    spec = tok.definition.to_spec()
    if tok.family not in FAMILIES:
        return {"refused": f"the page does not know the family {tok.family}"}
    try:
        steps = steps_for(spec["normalizer"])
        split = [
            dict(zip(("source", "classes"), to_javascript(one), strict=True)) for one in spec["split_chain"]
        ]
    except (NotInPageError, PatternError) as error:
        return {"refused": str(error)}
    kept = {name: value for name, value in spec.items() if name not in _NOT_NEEDED}
    unknown = getattr(tok.definition.model, "unknown_score", None)
    return {**kept, "steps": steps, "split": split, "unknown_score": unknown}
