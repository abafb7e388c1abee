"""Audit of words: entries of the cross-lingual lexicon that frozen prompts use and no prompt for tuning does; nothing is ranked.

``python -m surface.audit.words > surface/AUDIT-words.json`` makes the list again.
"""

from __future__ import annotations

import sys
import tempfile
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from schemarouter.catalog import Catalog
from schemarouter.retrieval.evidence.lexicon import FOLDER, Lexicon
from surface.loader import load_full_catalog, load_surface
from surface.task import Task


@dataclass(frozen=True, slots=True)
class NewWord:
    """A term of one language's list: its source, the frozen tasks that use it, and whether the catalog's own text does."""

    language: str
    term: str
    source: str
    tasks: tuple[str, ...]
    in_catalog: bool


class TermFinder:
    """Finds the terms of a cross-lingual lexicon that are in a text, by the lexicon's own rules."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self.entries: Mapping[tuple[str, str], Mapping[str, Any]] = {
            (path.stem, term): entry
            for path in sorted(folder.glob("*.json"))
            for term, entry in orjson.loads(path.read_bytes()).items()
        }
        # In a lexicon whose terms mean nothing but their own number, the stems are the terms that were found.
        self._numbers = {f"#{number}": key for number, key in enumerate(self.entries)}
        numbered: dict[str, dict[str, Any]] = {}
        for number, (language, term) in self._numbers.items():
            source = self.entries[language, term]["from"]
            numbered.setdefault(language, {})[term] = {"means": [number], "from": source}
        with tempfile.TemporaryDirectory() as directory:
            for language, terms in numbered.items():
                (Path(directory) / f"{language}.json").write_bytes(orjson.dumps(terms))
            self._lexicon = Lexicon(Path(directory))

    def found(self, text: str, language: str) -> frozenset[tuple[str, str]]:
        """The list and the term of every match in a text of that language."""
        return frozenset(self._numbers[number] for number in self._lexicon.stems(text, language))


def catalog_text(catalog: Catalog) -> str:
    """Every word of the contracts, names with spaces for underscores, normalised and case-folded."""
    parts: list[str] = []
    for item in catalog.capabilities:
        parts += [item.provider, item.operation, item.description]
        for field in (*item.parameters, *item.outputs):
            parts += [
                field.name,
                field.description,
                field.semantic_id or "",
                field.unit or "",
                *map(str, field.enum or ()),
            ]
    text = unicodedata.normalize("NFKC", " ".join(parts)).casefold()
    return " " + " ".join(text.replace("_", " ").replace(".", " ").split())


def new_words(development: Iterable[Task], frozen: Iterable[Task], catalog: Catalog) -> Iterator[NewWord]:
    """Terms that match in a frozen prompt and in no development prompt, by list and term."""
    finder, text = TermFinder(), catalog_text(catalog)
    known = {key for task in development for key in finder.found(task.prompt.query, task.prompt.language)}
    used: dict[tuple[str, str], list[str]] = {}
    for task in frozen:
        for key in finder.found(task.prompt.query, task.prompt.language) - known:
            used.setdefault(key, []).append(task.prompt.id)
    for (language, term), tasks in sorted(used.items()):
        in_catalog = f" {unicodedata.normalize('NFKC', term).casefold()}" in text
        yield NewWord(language, term, finder.entries[language, term]["from"], tuple(sorted(tasks)), in_catalog)


def report() -> dict[str, dict[str, dict[str, Any]]]:
    """By list and term: the source, the frozen tasks, and whether the term begins a word of the catalog."""
    words: dict[str, dict[str, dict[str, Any]]] = {}
    known = [*load_surface("development").tasks, *load_surface("training").tasks]
    for word in new_words(known, load_surface("frozen").tasks, load_full_catalog()):
        entry = {"from": word.source, "tasks": list(word.tasks), "in_catalog": word.in_catalog}
        words.setdefault(word.language, {})[word.term] = entry
    return words


def as_lines(words: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> bytes:
    """JSON with one line a term."""
    lists = []
    for language, terms in words.items():
        lines = [f"  {_json(term)}: {_json(entry)}" for term, entry in terms.items()]
        lists.append(f" {_json(language)}: {{\n" + ",\n".join(lines) + "\n }")
    return ("{\n" + ",\n".join(lists) + "\n}\n").encode()


def _json(value: object) -> str:
    return orjson.dumps(value).decode()


if __name__ == "__main__":
    sys.stdout.buffer.write(as_lines(report()))
