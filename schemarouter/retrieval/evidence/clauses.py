"""Splits a request into clauses: a request of several steps names about one thing in each clause."""

from __future__ import annotations

import re
from collections.abc import Mapping

from schemarouter.retrieval.text import normalise

_UNSPACED = "\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7a3"
# NFKC leaves no full-width signs. A full stop or colon ends a clause where white space or another script follows; after a digit
# a full stop is most often part of a date. A run of signs is looked at once, from its beginning.
_ENDING = rf"(?=\s|$|[{_UNSPACED}])"
_PUNCTUATION = rf"[!?;。]+|(?<!\d)[.]{_ENDING}|(?<![.])[.]+$|(?<![:…—–])[:…—–]+{_ENDING}|\n|,\s|、|[()「」]"
# Conjunctions separate clauses in languages with spaces; verb endings close them in Korean and Japanese.
_BETWEEN: Mapping[str, str] = {
    "en": r"and|then|so|but|because|since|if|once|when|after|before|while|until|unless|which|who|where|as soon as|also",
    "es": r"y|e|luego|después|pero|porque|que|si|cuando|para que|antes|mientras|aunque|donde|pues|así que|también",
    "de": r"und|dann|aber|weil|denn|wenn|falls|sobald|bevor|nachdem|damit|dass|ob|während|anschließend|danach|sonst|sowie",
}
_KOREAN = (
    r"(?<=[가-힣])(?:고|서|면|니까|는데|은데|지만|려고|도록|다가|으니|니|자마자|아야|어야|며|은 뒤|한 뒤|후에)(?=[\s,])"
)
_JAPANESE = r"(?:ので|から|けれど|けど|ために|たら|なら|れば|て、|し、|が、|のに|ように|際に|場合|うえで|上で)"
_ENDINGS: Mapping[str, str] = {"ko": _KOREAN, "mixed": _KOREAN, "ja": _JAPANESE}
# Characters of a clause; one of Korean or Japanese says about twice as much as a Latin one.
_MIN_LENGTH = 8
_MIN_LENGTH_UNSPACED = 4
# A conjunction that is part of an identifier (SO-4471) separates nothing.
_SPLITTERS = {
    **{
        # Case is ignored for the words alone: ignoring it for the ranges of punctuation takes far longer to compile.
        name: re.compile(rf"{_PUNCTUATION}|(?<![\w-])(?i:{words})(?![\w-])")
        for name, words in _BETWEEN.items()
    },
    **{name: re.compile(f"{_PUNCTUATION}|{ending}") for name, ending in _ENDINGS.items()},
}
_PLAIN = re.compile(_PUNCTUATION)
# Punctuation, and the white space that NFKC leaves as it is.
_EDGES = ",.;:!?、。 \t\n\r\v\f\x1c\x1d\x1e\x1f\x85\u1680\u2028\u2029"


def clauses(text: str, language: str) -> list[str]:
    """Return the clauses of a text, in order; a piece that is too short joins the one before. Empty for a blank text."""
    normal = normalise(text)
    keep_ending = language in _ENDINGS
    minimum = _MIN_LENGTH_UNSPACED if keep_ending else _MIN_LENGTH
    pieces: list[str] = []
    last = 0
    for match in _SPLITTERS.get(language, _PLAIN).finditer(normal):
        pieces.append(normal[last : match.end() if keep_ending else match.start()])
        last = match.end()
    pieces.append(normal[last:])
    merged: list[str] = []
    for piece in (piece.strip(_EDGES) for piece in pieces):
        if len(piece) >= minimum or (piece and not merged):
            merged.append(piece)
        elif piece:
            merged[-1] = f"{merged[-1]} {piece}"
    return merged
