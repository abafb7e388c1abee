"""Tokens of six languages, for lexical ranking.

Text is normalised (NFKC) and case-folded. Identifiers are split at case changes, underscores and dots; Hangul, Kana and
Han runs become character bigrams (a run of one character stays as it is); a number keeps the unit or word written after it
as a token of its own beside the bare number. A unit is one token, after a number and alone: ``kw`` for kW, ``m/s``, ``°c``,
``%``.
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
_DENSE = _HANGUL + _KANA + _HAN
_LETTER = rf"[^\W_{_DENSE}]"
# Units that the split at case changes would tear apart. K for kilo is a common slip.
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
    rf"|(?P<dense>[{_HANGUL}]+|[{_KANA}]+|[{_HAN}]+)"
    rf"|{_LETTER}++(?!/)"
    rf"|(?<!{_LETTER})(?<![_/])(?:{_SYMBOL}|{_COMPOUND})"
    rf"|{_LETTER}+"
)


# NFKC would make 11/2 of 1½ and 102 of 10²: a number and what is written small behind it are two numbers.
_SMALL_NUMBER = re.compile(
    r"(?<=\d)(?=[\u00b2\u00b3\u00b9\u00bc-\u00be\u2070\u2074-\u2079\u2080-\u2089\u2150-\u215e\u2189])"
)
# Requests are read up to here; nobody writes longer ones, and a pasted file would take minutes.
MAX_QUERY_CHARACTERS = 20_000


def normalise(text: str) -> str:
    """The text as all lexical reading begins: NFKC, without ignorable characters, small numbers apart from large ones."""
    if text.isascii():
        return text
    return unicodedata.normalize("NFKC", _SMALL_NUMBER.sub(" ", without_ignorable(text)))


def cut_query(query: str) -> tuple[str, str]:
    """A query without ignorable characters, cut to `MAX_QUERY_CHARACTERS`, and a note that says so where it was cut."""
    text = without_ignorable(query)
    if len(text) <= MAX_QUERY_CHARACTERS:
        return text, ""
    return text[
        :MAX_QUERY_CHARACTERS
    ], f"read the first {MAX_QUERY_CHARACTERS:,} of {len(text):,} characters of the query"


def tokenize(text: str) -> list[str]:
    """Split `text` into tokens, in order. Lone surrogates and unassigned characters are dropped with the punctuation."""
    # NFKC writes one-character units such as ㎧ with a division slash.
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
        elif kind == "dense":
            run = match.group()
            if not run.isalnum():
                # The script blocks have holes: code points that no Unicode version has assigned are no letters.
                run = "".join(char for char in run if unicodedata.category(char) != "Cn")
            if not run:
                continue
            tokens += [run] if len(run) == 1 else [run[i : i + 2] for i in range(len(run) - 1)]
        else:
            tokens.append(match.group())
    return tokens
