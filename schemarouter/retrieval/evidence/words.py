"""Stems (Snowball) of English content words, by which requests are compared with API references."""

from __future__ import annotations

import re
from functools import lru_cache

import Stemmer

from schemarouter.retrieval.language import FUNCTION_WORDS
from schemarouter.retrieval.text import tokenize

# Without its own cache: `stem` has one.
_STEMMER = Stemmer.Stemmer("english", 0)
_LETTERS = re.compile(r"[a-z]{2,}")
# Function words of English beyond those that identify the language, and verbs that fit every tool.
_ENGLISH = """
    or with by from are be its as which what when who how one each every per not no any all into than then so if but has have
    had was were will may must does do did been being their them they you us he she his her there here also only once still
    yet already such other more most about after before over under up out off same these those where while get gets use used
    using give gives gave return returns please want need needs let make made
"""
_STOP = FUNCTION_WORDS["en"] | frozenset(_ENGLISH.split())


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """Return the Snowball (English) stem of a case-folded word."""
    stemmed: str = _STEMMER.stemWord(word)
    return stemmed


def content_stems(text: str, language: str = "en") -> list[str]:
    """Return the stems of the Latin content words of a text, in order, without function words of English and its language."""
    skip = _STOP | FUNCTION_WORDS.get(language, frozenset())
    return [stem(token) for token in tokenize(text) if token not in skip and _LETTERS.search(token)]
