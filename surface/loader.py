"""Reading the surfaces: catalogs, prompts and answer keys, each with its fingerprint."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from pathlib import Path

from preregistration.protocol import Protocol, load_protocol
from schemarouter.canonical import fingerprint
from schemarouter.catalog import Catalog, load_catalog
from schemarouter.errors import SchemaRouterError, UsageError, unknown
from schemarouter.files import read_model
from schemarouter.retrieval.text import MAX_QUERY_CHARACTERS
from surface.task import CellFile, FamilyFile, Task, TaskKey, TaskPrompt

ROOT = Path(__file__).resolve().parent
FOLDERS: Mapping[str, str] = {name: name for name in ("development", "training", "frozen")}
# The surfaces whose tasks anything may be tuned on, and what all their tasks are called as one surface.
TUNING = ("development", "training")
TOGETHER = "together"
FAMILIES_FILE = "families.json"
# A text that holds that share of the n-grams of a request is a copy of it; independent tasks share less than a quarter.
_GRAM = 5
_COPIED, _COPIED_PART = 0.6, 0.8
# A part of fewer n-grams may be anybody's words.
_LONG_PART = 30
_MAX_TEXTS = 4096


class SurfaceError(SchemaRouterError):
    """Task files that cannot be read or contradict each other."""


@dataclass(frozen=True)
class Surface:
    """The tasks of one surface, sorted by id, the stratum of each, and the family of those that share their plot with another."""

    name: str
    tasks: tuple[Task, ...]
    strata: Mapping[str, str]
    families: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def by_id(self) -> Mapping[str, Task]:
        """Tasks by their id."""
        return {task.prompt.id: task for task in self.tasks}

    def prompt(self, task_id: str) -> TaskPrompt:
        """The prompt of a task. Raises UsageError for an unknown id."""
        return self._task(task_id).prompt

    def key(self, task_id: str) -> TaskKey:
        """The answer key of a task. Raises UsageError for an unknown id."""
        return self._task(task_id).key

    def _task(self, task_id: str) -> Task:
        task = self.by_id.get(task_id)
        if task is None:
            raise UsageError(unknown("task", task_id, self.by_id))
        return task

    def stratum(self, task_id: str) -> str:
        """The stratum of a task."""
        return self.strata[task_id]

    def cell(self, task_id: str) -> str:
        """``stratum/language`` of a task."""
        return f"{self.strata[task_id]}/{self.by_id[task_id].prompt.language}"

    def family(self, task_id: str) -> str:
        """The family of a task: the tasks that tell one plot, named after the first of them; alone it is its own."""
        return self.families.get(task_id, task_id)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over every prompt and key with its stratum and family."""
        return fingerprint(
            [
                {
                    "stratum": self.strata[task.prompt.id],
                    "family": self.family(task.prompt.id),
                    **task.model_dump(mode="json"),
                }
                for task in self.tasks
            ]
        )


def together(*surfaces: Surface) -> Surface:
    """The tasks of several surfaces as one, for audits and tuning."""
    tasks = sorted((task for surface in surfaces for task in surface.tasks), key=lambda task: task.prompt.id)
    strata = {name: stratum for surface in surfaces for name, stratum in surface.strata.items()}
    families = {name: family for surface in surfaces for name, family in surface.families.items()}
    return Surface(TOGETHER, tuple(tasks), strata, families)


@cache
def load_full_catalog(root: Path = ROOT) -> Catalog:
    """The largest catalog, read once a process; smaller ones are nested in it (`Catalog.tier`)."""
    return load_catalog(root / "catalog")


@cache
def _tier(size: int, root: Path) -> Catalog:
    return load_full_catalog(root).tier(size)


def load_catalogs(sizes: Iterable[int], root: Path = ROOT) -> dict[int, Catalog]:
    """The nested catalogs of the sizes asked for. Raises CatalogError for a size that does not exist."""
    return {size: _tier(size, root) for size in sizes}


@cache
def load_surface(name: str, root: Path = ROOT) -> Surface:
    """Read every cell file of a surface, once a process; strata and languages are those of its protocol.

    Raises SurfaceError with all mistakes of all files at once.
    """
    folder = FOLDERS.get(name)
    if folder is None:
        raise UsageError(unknown("surface", name, FOLDERS))
    protocol = load_protocol(name)
    tasks: list[Task] = []
    strata: dict[str, str] = {}
    problems: list[str] = []
    for path in sorted((root / folder).glob("*/*.json")):
        try:
            cell = _load_cell(path, protocol)
        except SurfaceError as error:
            problems.append(str(error))
            continue
        for task in cell.tasks:
            if task.prompt.id in strata:
                problems.append(f"{_location(path)}: task id {task.prompt.id!r} is in another file already.")
            strata[task.prompt.id] = cell.stratum
            tasks.append(task)
    if problems:
        raise SurfaceError("\n".join(problems))
    return Surface(name, tuple(sorted(tasks, key=lambda task: task.prompt.id)), strata, load_families(root))


@cache
def load_families(root: Path = ROOT) -> Mapping[str, str]:
    """The family of every task that shares its plot with others, over all surfaces. Raises SurfaceError for a task in two."""
    path = root / FAMILIES_FILE
    groups = read_model(path, FamilyFile, SurfaceError).families if path.exists() else ()
    names = [task for group in groups for task in group]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SurfaceError(f"{FAMILIES_FILE}: {', '.join(twice)} in more than one family.")
    return {task: min(group) for group in groups for task in group}


@cache
def frozen_queries() -> Mapping[str, frozenset[str]]:
    """The queries of the frozen tasks with their n-grams of letters: a task is frozen by what it asks, not by its folder."""
    return {task.prompt.query: _grams(task.prompt.query) for task in load_surface("frozen").tasks}


@lru_cache(maxsize=_MAX_TEXTS)
def asks_frozen(text: str) -> bool:
    """Whether a text holds a near copy of a frozen task's query, whatever stands around it, or is one of a long part of it.

    Texts are compared by their n-grams of letters and digits, without accents: a copy with a typo shares most of them. No more
    of a text is read than a retriever reads.
    """
    grams = _grams(text[:MAX_QUERY_CHARACTERS])
    return any(
        (shared := len(grams & frozen)) >= _COPIED * len(frozen)
        or (len(grams) >= _LONG_PART and shared >= _COPIED_PART * len(grams))
        for frozen in frozen_queries().values()
    )


def _grams(text: str) -> frozenset[str]:
    """All runs of `_GRAM` letters and digits of a text, without case, accents and what stands between them."""
    plain = filter(str.isalnum, unicodedata.normalize("NFKD", text).casefold())
    letters = unicodedata.normalize("NFC", "".join(plain))
    return frozenset(letters[start : start + _GRAM] for start in range(max(len(letters) - _GRAM + 1, 1)))


def _location(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def _load_cell(path: Path, protocol: Protocol) -> CellFile:
    location = _location(path)
    cell = read_model(path, CellFile, SurfaceError, location=location, between=f"\n{location}: ")
    for kind, given, allowed in (
        ("stratum", cell.stratum, protocol.strata), ("language", cell.language, protocol.languages),
    ):  # fmt: skip
        if given not in allowed:
            raise SurfaceError(f"{location}: {unknown(kind, given, allowed)}")
    if (cell.stratum, cell.language) != (path.parent.name, path.stem):
        raise SurfaceError(f"{location}: holds the cell {cell.stratum}/{cell.language}.")
    return cell
