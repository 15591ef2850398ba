r"""Runs of characters of one script, as an expression: `unicode_scripts`.

Hiragana, Katakana and the long vowel mark count as Han. Spaces, and characters that are no script's, belong
to the run before them; at the beginning of a text, before any run, they are a stretch of their own. All other
characters without a script of their own, such as digits, punctuation and tabs, are a script, too (Common).

Source: `UnicodeScripts` of Hugging Face's tokenizers, which leaves out the spaces that a text begins with,
and whose tables do not know the newest characters.
"""

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

SCRIPTS = (*_NAMES.split(),)
"""The scripts of Unicode 16 by their ISO 15924 names, frequent ones first."""

_HAN = r"[\p{sc=Hani}\p{sc=Hira}\p{sc=Kana}ー]"
_ANY = r"[ \p{sc=Zzzz}]"
_COMMON = rf"(?![ ー])\p{{sc=Zyyy}}(?:(?!ー)\p{{sc=Zyyy}}|{_ANY})*"
_MERGED = frozenset({"Hani", "Hira", "Kana", "Zyyy"})


def runs_of_scripts() -> str:
    """Return the expression."""
    alone = [rf"\p{{sc={name}}}" for name in SCRIPTS if name not in _MERGED]
    runs = [f"{one}(?:{one}|{_ANY})*" for one in (alone[0], _HAN, *alone[1:])]
    return "|".join([runs[0], _COMMON, *runs[1:]])
