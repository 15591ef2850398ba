"""Write the keys of a profile into docs/profiles.md, each with the beginning of its description.

    python docs/keys.py

`tokmill profiles --keys` prints the descriptions in full.
"""

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from tokmill.flows.profile import Profile
from tokmill.flows.profile.fields import Key, profile_keys

PAGE = Path(__file__).with_name("profiles.md")
HEADING = "\n## Every key\n"
MOST_WORDS = 11  # of a sentence that is not cut at its colon or semicolon
FEWEST_WORDS = 4  # of what comes before it
SENTENCE = re.compile(r"(?<!al\.)(?<!e\.g\.)(?<=\.) (?=['A-Z0-9]|\w+: )")
PLAIN = re.compile(r"^(text|whole number|number|true or false)( |$)")
UNREACHED = re.compile(r" (and )?[<≤] [\d,]{11,}")  # bounds of the machine's integers


def made(page: str) -> str:
    """Return the page with its list of keys, which is its last part, made again."""
    before, _, after = page.partition(HEADING)
    introduction = after.strip().partition("\n\n")[0]
    lines = "\n".join(_lines()).strip()
    return f"{before}{HEADING}\n{introduction}\n\n{lines}\n"


def _lines() -> Iterator[str]:
    for section, keys in groupby(profile_keys(Profile), key=lambda key: key.section):
        yield f"\n**`[{section}]`**\n" if section else "\n**At the top**\n"
        yield from map(_item, keys)


def _item(key: Key) -> str:
    return f"- `{key.name}`{_shape(key)}: {_beginning(key.description)}"


def _shape(key: Key) -> str:
    """Return type, bounds and default in parentheses, without a type that the default shows."""
    kind = UNREACHED.sub("", key.kind.replace('" or "', '", "'))
    if key.default == "required":
        return f" ({kind}, required)"
    if not key.default:
        return f" ({kind})" if kind != "text" else ""
    bounds = PLAIN.sub("", kind)
    return f" ({bounds}, default `{key.default}`)" if bounds else f" (default `{key.default}`)"


def _beginning(description: str) -> str:
    """Return the first sentence; of a long one what comes before its colon or semicolon."""
    sentence = SENTENCE.split(description)[0]
    cuts = [each.start() for each in re.finditer(r"[:;] ", sentence)]
    heads = [sentence[:cut] for cut in cuts if len(sentence[:cut].split()) >= FEWEST_WORDS]
    if len(sentence.split()) <= MOST_WORDS or not heads:
        return sentence
    return f"{heads[0]}."


if __name__ == "__main__":
    PAGE.write_text(made(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
