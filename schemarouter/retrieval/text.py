"""Tokens of texts in six languages, for lexical ranking.

Text is normalised (NFKC) and case-folded. Identifiers are split at case changes, underscores and dots; Hangul, Kana and
Han runs become character bigrams (a run of one character stays as it is). A number followed by a unit or word gives three
tokens: the number, both together, and the unit or word. A unit is one token, after a number and alone: ``kw`` for kW,
``m/s``, ``°c``, ``%``.
"""

from __future__ import annotations

import re
import unicodedata

from schemarouter.invisible import without_ignorable

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


# NFKC would make 11/2 of 1½ and 102 of 10²: a number and what is written small behind it are two numbers.
_SMALL_NUMBER = re.compile(
    r"(?<=\d)(?=[\u00b2\u00b3\u00b9\u00bc-\u00be\u2070\u2074-\u2079\u2080-\u2089\u2150-\u215e\u2189])"
)
# Queries are read up to here; nobody writes longer ones, and a pasted file would take minutes.
MAX_QUERY_CHARACTERS = 20_000


def normalise(text: str) -> str:
    """Return the text as all lexical reading begins: NFKC, without ignorable characters, small numbers apart from large."""
    if text.isascii():
        return text
    return unicodedata.normalize("NFKC", _SMALL_NUMBER.sub(" ", without_ignorable(text)))


def cut_query(query: str) -> tuple[str, str]:
    """Return a query without ignorable characters, cut to `MAX_QUERY_CHARACTERS`, and a note where it was cut."""
    text = without_ignorable(query)
    if len(text) <= MAX_QUERY_CHARACTERS:
        return text, ""
    note = f"read the first {MAX_QUERY_CHARACTERS:,} of {len(text):,} characters of the query"
    return text[:MAX_QUERY_CHARACTERS], note


def tokenize(text: str) -> list[str]:
    """Split `text` into tokens, in order. Lone surrogates and unassigned characters are dropped with the punctuation."""
    # NFKC expands one-character units such as ㎧ with a division slash.
    normal = normalise(text).replace("\u2215", "/")
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
