"""Tokens of texts in six languages, for lexical ranking.

Text is normalised (NFKC) and case-folded. Identifiers are split at case changes, underscores and dots; Hangul, Kana and
Han runs become character bigrams (a run of one character stays as it is). A number followed by a unit or word gives three
tokens: the number, both together, and the unit or word. A unit is one token, after a number and alone: ``kw`` for kW,
``m/s``, ``°c``, ``%``.
"""

from __future__ import annotations

import re
import unicodedata

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_HANGUL = "\u1100-\u11ff\u3130-\u318f\ua960-\ua97f\uac00-\ud7ff"
# Without the double hyphen \u30a0 and the middle dot \u30fb, which are punctuation.
_KANA = "\u3040-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"
_HAN = "\u2e80-\u2fdf\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f"
_BIGRAM_SCRIPTS = _HANGUL + _KANA + _HAN
_LETTER = rf"[^\W_{_BIGRAM_SCRIPTS}]"
# Units that the split at case changes would tear apart. K for kilo is a common mistake.
_MIXED_CASE_UNIT = re.compile(
    r"(?<![A-Za-z])(?:"
    r"[kKMGTPhcdmnp](?:[VWABJNLFHSTC]|Hz|Pa|Wh|Ah|VA|VAh|Wp|Sv|Bq|Gy|Eq|eV|Bit)"
    r"|[KMGTP]iB|eV|dBm|dBA|deg[CFK])(?![A-Za-z0-9])"
)
_OVER = (
    r"(?:[kmcdμn]?g|[kmcdμn]?m|[mcdμ]?l|t|lb|ft|in|mi|gal|m[23]|[kmg]?w|[kmg]?wh|[km]?j|k?n|k?cal"
    r"|[kmgt]?bit|[kmgt]?b|[mμn]?mol|iu|meq)"
)
_UNDER = r"(?:[kmcdμ]?g|[cdk]?m|[cdm]?l|m[23]|s2?|h|min|ha|mol|kwh)"
_SYMBOL = rf"(?:°[cfk]?|[%‰])(?!{_LETTER})"
_COMPOUND = rf"{_OVER}/{_UNDER}(?!{_LETTER}|/)"
_TOKEN = re.compile(
    rf"(?P<measure>(?<!{_LETTER})(?<![_.])(?P<number>\d+(?:[.,]\d+)*)"
    rf"(?:\s?(?P<unit>{_SYMBOL}|{_COMPOUND}|(?!\d){_LETTER}++(?![_-]))|(?![\d_-])))"
    rf"|(?P<bigrams>[{_HANGUL}]+|[{_KANA}]+|[{_HAN}]+)"
    rf"|{_LETTER}++(?!/)"
    rf"|(?<!{_LETTER})(?<![_/])(?:{_SYMBOL}|{_COMPOUND})"
    rf"|{_LETTER}+"
)


def tokenize(text: str) -> list[str]:
    """Split `text` into tokens, in order. Lone surrogates and unassigned characters are dropped with the punctuation."""
    # NFKC expands one-character units such as ㎧ with a division slash.
    normal = unicodedata.normalize("NFKC", text).replace("\u2215", "/")
    whole = _MIXED_CASE_UNIT.sub(lambda unit: unit[0].lower(), normal)
    folded = _CAMEL.sub(" ", whole).casefold()
    tokens: list[str] = []
    for match in _TOKEN.finditer(folded):
        kind = match.lastgroup
        if match["number"] is not None:
            tokens.append(match["number"])
            if match["unit"] is not None:
                tokens += [match["number"] + match["unit"], match["unit"]]
        elif kind == "bigrams":
            run = match.group()
            if not run.isalnum():
                # The blocks of these scripts hold unassigned code points, which are not letters.
                run = "".join(char for char in run if unicodedata.category(char) != "Cn")
            if not run:
                continue
            tokens += [run] if len(run) == 1 else [run[i : i + 2] for i in range(len(run) - 1)]
        else:
            tokens.append(match.group())
    return tokens
