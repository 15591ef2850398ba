"""The script of a character, as SentencePiece tells them apart.

Hiragana, Katakana and the long vowel mark count as Han. Characters without a script are Common. The tables
are those of the `regex` package, which know newer characters than sentencepiece's.
"""

from functools import lru_cache

import regex

COMMON, INHERITED, HAN = "Zyyy", "Zinh", "Hani"

_MERGED = {"Hira": HAN, "Kana": HAN}
_LONG_VOWEL_MARK = "ー"
_NAMES = (
    "Latn Cyrl Hani Zyyy Zinh Hira Kana Hang Arab Deva Grek Hebr Thai Beng Taml Ethi Geor Armn Adlm "
    "Aghb Ahom Armi Avst Bali Bamu Bass Batk Bhks Bopo Brah Brai Bugi Buhd Cakm Cans Cari Cham Cher "
    "Chrs Copt Cpmn Cprt Diak Dogr Dsrt Dupl Egyp Elba Elym Gara Glag Gong Gonm Goth Gran Gujr Gukh "
    "Guru Hano Hatr Hluw Hmng Hmnp Hung Ital Java Kali Kawi Khar Khmr Khoj Kits Knda Krai Kthi Lana "
    "Laoo Lepc Limb Lina Linb Lisu Lyci Lydi Mahj Maka Mand Mani Marc Medf Mend Merc Mero Mlym Modi "
    "Mong Mroo Mtei Mult Mymr Nagm Nand Narb Nbat Newa Nkoo Nshu Ogam Olck Onao Orkh Orya Osge Osma "
    "Ougr Palm Pauc Perm Phag Phli Phlp Phnx Plrd Prti Rjng Rohg Runr Samr Sarb Saur Sgnw Shaw Shrd "
    "Sidd Sind Sinh Sogd Sogo Sora Soyo Sund Sunu Sylo Syrc Tagb Takr Tale Talu Tang Tavt Telu Tfng "
    "Tglg Thaa Tibt Tirh Tnsa Todr Toto Tutg Ugar Vaii Vith Wara Wcho Xpeo Xsux Yezi Yiii Zanb"
)


@lru_cache(maxsize=1)
def _known() -> "tuple[list[str], regex.Pattern[str]]":
    """Return the names that the `regex` package knows, and an expression with a group for each."""
    names = [name for name in _NAMES.split() if _is_known(name)]
    return names, regex.compile("|".join(rf"(\p{{Script={name}}})" for name in names))


def _is_known(name: str) -> bool:
    try:
        regex.compile(rf"\p{{Script={name}}}")
    except regex.error:  # of an older version
        return False
    return True


@lru_cache(maxsize=1 << 16)
def script_of(character: str) -> str:
    """Return the script of a character, by its ISO 15924 name."""
    if character == _LONG_VOWEL_MARK:
        return HAN
    names, expression = _known()
    found = expression.match(character)
    name = names[found.lastindex - 1] if found else COMMON
    return _MERGED.get(name, name)
