"""Tokens of six languages, for lexical ranking.

Text is normalised (NFKC) and case-folded. Identifiers are split at case changes, underscores and dots; Hangul, Kana and
Han runs become character bigrams (a run of one character stays as it is); a number keeps the unit written after it as a
token of its own beside the bare number.
"""

from __future__ import annotations

import re
import unicodedata

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_HANGUL = "\u1100-\u11ff\u3130-\u318f\ua960-\ua97f\uac00-\ud7ff"
_KANA = "\u3040-\u30ff\u31f0-\u31ff"
_HAN = "\u2e80-\u2fdf\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f"
_UNIT = r"[a-zµμ°%Ω][a-z0-9µμ°%/²³]*"
_TOKEN = re.compile(
    rf"(?P<measure>(?<![\w.])(?P<number>\d+(?:[.,]\d+)*)\s?(?P<unit>{_UNIT})?(?![\d_-]))"
    rf"|(?P<dense>[{_HANGUL}]+|[{_KANA}]+|[{_HAN}]+)"
    rf"|(?P<word>(?:(?![{_HANGUL}{_KANA}{_HAN}_])\w)+)"
)


def tokenize(text: str) -> list[str]:
    """Split `text` into tokens, in order. Lone surrogates and unassigned characters are dropped with the punctuation."""
    normal = unicodedata.normalize("NFKC", text)
    folded = _CAMEL.sub(" ", normal).casefold()
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
