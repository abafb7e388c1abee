"""The cross-lingual lexicon: from everyday words of six languages to the English vocabulary of API references.

Each language has a reviewed JSON file under ``retrieval/lexicon``: ``term: {"means": [words], "from": source}``, where the source
names the capability (``catalog:…``) or the development task (``development:…``) that an entry was derived from.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, RootModel

from schemarouter.canonical import sha256_hex
from schemarouter.errors import SchemaRouterError
from schemarouter.files import read_model
from schemarouter.retrieval.evidence.words import stem
from schemarouter.retrieval.text import normalise

FOLDER = Path(__file__).resolve().parents[1] / "lexicon"
# Mixed requests are Korean with English terms.
_LISTS: Mapping[str, tuple[str, ...]] = {"mixed": ("ko", "en")}
# Languages written without spaces, or with particles attached to words: terms are looked up at every character.
_UNSPACED = frozenset({"ko", "ja"})
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
# Characters by which terms are indexed.
_PREFIX = 2
# German compounds: a part weighs less than a word, and short parts occur in too many words.
_MIN_COMPOUND, _MIN_PART, _PART_WEIGHT = 9, 5, 0.7
# Weight of a stem, however often a request repeats it.
_MAX_WEIGHT = 2.0


class LexiconError(SchemaRouterError):
    """A lexicon file that cannot be used."""


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    means: tuple[str, ...] = Field(strict=False, min_length=1)
    source: str = Field(alias="from", pattern=r"^(catalog|development):\S+$")


class _File(RootModel[dict[str, _Entry]]):
    model_config = ConfigDict(frozen=True)


@dataclass(frozen=True, slots=True)
class _Term:
    text: str
    stems: tuple[str, ...]


def _folded(text: str) -> str:
    """The text normalised (NFKC), case-folded, with one kind of apostrophe."""
    return normalise(text).casefold().replace("\u2019", "'")


class _List:
    """The terms of one language, indexed by their first characters, the longest first."""

    def __init__(self, entries: Mapping[str, _Entry]) -> None:
        self._terms: dict[str, list[_Term]] = {}
        for text, entry in entries.items():
            stems = tuple(dict.fromkeys(stem(word) for mean in entry.means for word in mean.casefold().split()))
            term = _Term(_folded(text), stems)
            self._terms.setdefault(term.text[:_PREFIX], []).append(term)
        for terms in self._terms.values():
            terms.sort(key=lambda term: (-len(term.text), term.text))

    def longest(self, text: str, start: int) -> _Term | None:
        """Return the longest term that begins at an index of the text, or None."""
        for term in self._terms.get(text[start : start + _PREFIX], ()):
            if text.startswith(term.text, start):
                return term
        return None

    def anywhere(self, text: str) -> Iterator[tuple[_Term, float]]:
        """Yield the terms of a text from left to right, without overlaps, with weights."""
        index = 0
        while index < len(text):
            term = self.longest(text, index)
            if term is not None:
                yield term, 1.0
            index += len(term.text) if term is not None else 1

    def at_words(self, text: str, *, compounds: bool) -> Iterator[tuple[_Term, float]]:
        """Yield the terms that begin at words, and with `compounds` those inside long words, with weights."""
        end = 0
        for word in _WORD.finditer(text):
            if word.start() < end:
                continue
            term = self.longest(text, word.start())
            if term is not None:
                yield term, 1.0
                end = word.start() + len(term.text)
            if compounds and len(word.group()) >= _MIN_COMPOUND:
                yield from self._parts(word.group())

    def _parts(self, word: str) -> Iterator[tuple[_Term, float]]:
        for index in range(3, len(word) - _MIN_PART + 1):
            term = self.longest(word, index)
            if term is not None and len(term.text) >= _MIN_PART:
                yield term, _PART_WEIGHT


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.json"))


def identity_of(folder: Path = FOLDER) -> str:
    """Return the SHA-256 of the names and bytes of the files; parses none, since every run asks for it."""
    digests = [f"{path.name} {sha256_hex(path.read_bytes())}" for path in _files(folder)]
    return sha256_hex("\n".join(digests).encode())


class Lexicon:
    """Translates requests into weighted English stems. Raises LexiconError for a file that cannot be used."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._unparsed = {p.stem: read_model(p, _File, LexiconError).root for p in _files(folder)}
        self._lists: dict[str, _List] = {}
        self.identity = identity_of(folder)

    def stems(self, text: str, language: str) -> dict[str, float]:
        """Return the English stems that a text in a language means, with weights: a term's weight is split over its stems."""
        folded = _folded(text)
        weights: dict[str, float] = {}
        for name in _LISTS.get(language, (language,)):
            terms = self._list(name)
            if terms is None:
                continue
            matches = terms.anywhere(folded) if name in _UNSPACED else terms.at_words(folded, compounds=name == "de")
            for term, weight in matches:
                share = weight / math.sqrt(len(term.stems))
                for word in term.stems:
                    weights[word] = min(_MAX_WEIGHT, weights.get(word, 0.0) + share)
        return weights

    def _list(self, name: str) -> _List | None:
        """The terms of a language, stemmed at first use; None where there is no file."""
        if name in self._unparsed:
            self._lists[name] = _List(self._unparsed.pop(name))
        return self._lists.get(name)


@cache
def shared_lexicon() -> Lexicon:
    """Return the lexicon of this package, read once a process."""
    return Lexicon()
