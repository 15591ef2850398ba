"""The sample texts that ship with the project: encoding, shape, and the scripts that they cover."""

import re
import unicodedata
from pathlib import Path

import pytest

# Names of scripts as they begin the names of their characters in the Unicode database.
SCRIPTS = {
    "am": {"ETHIOPIC"},
    "ar": {"ARABIC"},
    "bn": {"BENGALI"},
    "de": {"LATIN"},
    "el": {"GREEK"},
    "es": {"LATIN"},
    "fi": {"LATIN"},
    "fr": {"LATIN"},
    "he": {"HEBREW"},
    "hi": {"DEVANAGARI"},
    "ja": {"CJK", "HIRAGANA", "KATAKANA"},
    "ka": {"GEORGIAN"},
    "ko": {"HANGUL"},
    "pl": {"LATIN"},
    "pt": {"LATIN"},
    "ru": {"CYRILLIC"},
    "sw": {"LATIN"},
    "th": {"THAI"},
    "tr": {"LATIN"},
    "uk": {"CYRILLIC"},
    "vi": {"LATIN"},
    "zh": {"CJK"},
}


@pytest.fixture(scope="module")
def samples(checkout: Path) -> Path:
    return checkout / "profiles" / "samples"


def scripts(text: str) -> set[str]:
    """The scripts of the letters and marks of a text; digits, punctuation and spaces have none."""
    written = {char for char in text if unicodedata.category(char)[0] in "LM"}
    return {re.split("[ -]", unicodedata.name(char))[0] for char in written}


def test_at_least_sixteen_languages_and_nine_scripts(samples: Path) -> None:
    found = {path.stem: scripts(path.read_text(encoding="utf-8")) for path in samples.glob("*.txt")}

    assert found == SCRIPTS
    assert len(found) >= 16
    assert len(set().union(*found.values())) >= 9


@pytest.mark.parametrize("language", SCRIPTS)
def test_text_is_normalized_utf8_with_one_newline_at_the_end(samples: Path, language: str) -> None:
    text = (samples / f"{language}.txt").read_bytes().decode("utf-8", errors="strict")

    assert unicodedata.is_normalized("NFC", text)
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    assert not {char for char in text if unicodedata.category(char) in {"Cc", "Cf", "Co", "Cn"}} - {"\n"}


def test_the_readme_lists_every_file_and_no_other(samples: Path) -> None:
    readme = (samples / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)\.txt` \|", readme, flags=re.MULTILINE)

    assert listed == sorted(SCRIPTS)
