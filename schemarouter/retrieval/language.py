"""Detects which of six languages a text is in: by script, and by function words for those in Latin script."""

from __future__ import annotations

import re
from collections.abc import Mapping

from schemarouter.retrieval.text import normalise

FUNCTION_WORDS: Mapping[str, frozenset[str]] = {
    name: frozenset(words.split())
    for name, words in {
        "en": "the a an to of for and is it in on we our my please with that this you what can from at be by",
        "es": "el la los las de del que y en un una para por con se es al lo su me nos ya hay si no",
        "de": "der die das und ist im in den dem ein eine für auf mit bitte wir ich von zu zum zur nicht bei an",
    }.items()
}
_WORD = re.compile(r"\S+")
_HANGUL = re.compile("[\uac00-\ud7a3]")
_KANA = re.compile("[\u3040-\u30ff]")
_HAN = re.compile("[\u4e00-\u9fff]")
# Latin words that carry meaning: a lower-case word or an acronym, and no part of an identifier.
_LATIN_WORD = re.compile(r"(?<![\w-])[A-Za-z][a-z]+(?![\w-]*\d)|(?<![\w-])[A-Z]{2,}(?![\w-])")
_MIN_ENGLISH_WORDS = 3


def language_of(text: str) -> str:
    """Return ``en``, ``ko``, ``es``, ``ja``, ``de`` or ``mixed`` (Korean with English terms); ``unknown`` without letters."""
    # Mail addresses say nothing of a language.
    text = _WORD.sub(lambda word: " " if "@" in word[0][1:-1] else word[0], normalise(text))
    hangul, kana = len(_HANGUL.findall(text)), len(_KANA.findall(text))
    if kana > hangul or (not hangul and _HAN.search(text)):
        return "ja"
    if hangul:
        return "mixed" if len(_LATIN_WORD.findall(text)) >= _MIN_ENGLISH_WORDS else "ko"
    words = re.findall(r"[^\W\d_]+", text.casefold())
    if not words:
        return "unknown"
    scores = {name: sum(word in known for word in words) for name, known in FUNCTION_WORDS.items()}
    return max(scores, key=lambda name: scores[name])
