"""What a SentencePiece model does to white space, as steps that any `tokenizer.json` can hold."""

from tokmill.tokenizer.components.normalizer_steps import Step, spelled
from tokmill.tokenizer.components.sentences import SentenceNormalizer
from tokmill.tokenizer.components.steps import MARK
from tokmill.tokenizer.core.errors import FormatError

_AT_THE_BEGINNING, _AT_THE_END = r"(?<![\s\S]) +", rf"[ {MARK}]+(?![\s\S])"


def sentence_steps(normalizer: SentenceNormalizer) -> str | None:
    """Return the name of a normalizer (`components.normalizers`) that does the same.

    Raises:
        FormatError: the model has rules, symbols that users defined, or a space after the text.
    """
    for reason in _reasons(normalizer):
        raise FormatError(
            f"format='huggingface' cannot express normalizer={normalizer.name!r}: {reason}; use "
            "format='sentencepiece' or 'tokmill'"
        )
    extra = [
        Step("replace_pattern", (_AT_THE_BEGINNING, "")),
        Step("replace_pattern", (_AT_THE_END, "")),
        Step("replace_pattern", (" {2,}", " ")),
    ]
    prefix = [Step("prepend", (MARK,))] if normalizer.add_dummy_prefix else []
    spaces = [Step("replace", (" ", MARK))]
    return spelled((*(extra if normalizer.remove_extra_whitespaces else ()), *prefix, *spaces))


def _reasons(normalizer: SentenceNormalizer) -> list[str]:
    found = []
    if normalizer.charsmap:
        found.append("tokenizers applies rules by grapheme clusters, so that 'ﬁ' loses an accent after it")
    if normalizer.kept:
        found.append(
            f"tokenizers takes symbols such as {normalizer.kept[0]!r:.80} out before it normalizes: a text "
            "begins after each"
        )
    if normalizer.treat_whitespace_as_suffix:
        found.append(f"tokenizers puts {MARK} before a text, not after it")
    return found
