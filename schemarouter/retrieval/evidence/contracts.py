"""Contracts compiled into arrays: what each entry needs and gives, by kind of identifier and by unit.

A *kind* is a semantic id where one is registered, else a field name; a needed name is also given by a field whose name ends
it (``origin_location_id`` by ``location_id``), which is how catalogs without semantic ids are matched. A *quantity* is a
dimension with a unit. Arrays of edges are sorted by entry; entries are sorted by id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from schemarouter.catalog import Capability, Contract, Parameter
from schemarouter.retrieval.base import Entry
from schemarouter.retrieval.evidence.literals import Shape, is_literal, shape

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
# A name that only ends in another says a little less than the same name.
_BY_SUFFIX = 0.8


def kind_of(item: Contract) -> str:
    """What an identifier is of: its semantic id, else its name."""
    return item.semantic_id or item.name


def provider_of(entry: Entry) -> str:
    """The part of an id before its first dot; a registered provider where there is one."""
    return entry.capability.provider if entry.capability is not None else entry.id.partition(".")[0]


@dataclass(frozen=True)
class Edges:
    """Pairs of an entry and something of it, with a weight: arrays of one length, sorted by entry."""

    entry: Ints
    what: Ints
    weight: Floats

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, int, float]]) -> Edges:
        """From triples."""
        rows = sorted(pairs)
        entry, what, weight = zip(*rows, strict=True) if rows else ((), (), ())
        return cls(np.asarray(entry, np.int64), np.asarray(what, np.int64), np.asarray(weight, np.float64))

    @cached_property
    def _runs(self) -> tuple[Ints, Ints]:
        """The entries that have edges, and where the edges of each begin."""
        entries, starts = np.unique(self.entry, return_index=True)
        return entries, starts.astype(np.int64)

    def most(self, values: Floats | Bools, size: int) -> Floats:
        """Per entry the largest of `values` (one an edge, at least 0); 0 for an entry without edges. Shape (size,)."""
        found = np.zeros(size)
        entries, starts = self._runs
        if len(entries):
            found[entries] = np.maximum.reduceat(values, starts)
        return found

    def total(self, values: Floats | Bools, size: int) -> Floats:
        """Per entry the sum of `values`, one an edge. Shape (size,)."""
        return np.bincount(self.entry, weights=values, minlength=size).astype(np.float64)


@dataclass(frozen=True)
class Examples:
    """Registered examples that are identifiers: an entry, the place of its shape in `shapes`, and of its kind.

    Arrays of one length; a kind is -1 where the parameter is of no kind that any entry needs.
    """

    entry: Ints
    what: Ints
    kind: Ints
    shapes: tuple[Shape, ...]

    @classmethod
    def of(cls, known: Sequence[tuple[int, Capability]], kind_place: Mapping[str, int]) -> Examples:
        """Of the parameters of capabilities, each with the place of its entry."""
        found: dict[Shape, int] = {}
        rows = [
            (
                place,
                found.setdefault(shape(item.example), len(found)),
                kind_place.get(kind_of(item), -1) if item.is_identifier else -1,
            )
            for place, capability in known
            for item in capability.parameters
            if item.type == "string" and isinstance(item.example, str) and is_literal(item.example)
        ]
        entry, what, kind = np.asarray(rows, np.int64).reshape(-1, 3).T
        return cls(entry, what, kind, tuple(found))


class Contracts:
    """The contracts of `entries`, which are sorted by id; entries without a capability need and give nothing."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.size = len(entries)
        self.position = {entry.id: place for place, entry in enumerate(entries)}
        capabilities = [entry.capability for entry in entries]
        known = [(place, item) for place, item in enumerate(capabilities) if item is not None]
        names = [provider_of(entry) for entry in entries]
        self.providers = sorted(set(names))
        place_of = {name: place for place, name in enumerate(self.providers)}
        self.provider: Ints = np.asarray([place_of[name] for name in names], np.int64)
        self.read: Bools = np.ones(self.size, np.bool_)
        self.destructive: Bools = np.zeros(self.size, np.bool_)
        for place, item in known:
            self.read[place] = item.effect == "read"
            self.destructive[place] = item.effect == "destructive"
        self.outputs = [frozenset(o.name for o in item.outputs) if item else frozenset() for item in capabilities]
        self._identifiers(known)
        self._quantities(known)
        self._meanings(known)
        self.examples = Examples.of(known, self.kind_place)

    def _identifiers(self, known: Sequence[tuple[int, Capability]]) -> None:
        counts: dict[tuple[int, str], int] = {}
        for place, item in known:
            for parameter in item.required_parameters:
                if parameter.is_identifier:
                    key = (place, kind_of(parameter))
                    counts[key] = counts.get(key, 0) + 1
        self.kinds = sorted({kind for _, kind in counts})
        self.kind_place = {kind: place for place, kind in enumerate(self.kinds)}
        self.needs = Edges.of((place, self.kind_place[kind], float(n)) for (place, kind), n in counts.items())
        names = [kind for kind in self.kinds if "." not in kind]
        suffixes: dict[str, list[str]] = {}
        for kind in names:
            parts = kind.split("_")
            for cut in range(1, len(parts) - 1):
                suffixes.setdefault("_".join(parts[cut:]), []).append(kind)
        self.suffixes = suffixes
        gives: dict[tuple[int, int], float] = {}
        for place, item in known:
            for output in item.outputs:
                for kind, weight in self._given_by(output):
                    edge = (place, self.kind_place[kind])
                    gives[edge] = max(gives.get(edge, 0.0), weight)
        self.gives = Edges.of((place, kind, weight) for (place, kind), weight in gives.items())
        self._pair_up()

    def _given_by(self, output: Contract) -> Iterable[tuple[str, float]]:
        kind = kind_of(output)
        if kind in self.kind_place:
            yield kind, 1.0
        for longer in self.suffixes.get(output.name, ()) if output.semantic_id is None else ():
            yield longer, _BY_SUFFIX

    def _pair_up(self) -> None:
        """Edges of needs and gives that meet: in one provider, and in one entry (-1 where they do not)."""
        pairs = self.provider[self.needs.entry] * (len(self.kinds) or 1) + self.needs.what
        unique, self.need_pair = np.unique(pairs, return_inverse=True)
        self.pairs = len(unique)
        wanted = self.provider[self.gives.entry] * (len(self.kinds) or 1) + self.gives.what
        found = np.searchsorted(unique, wanted)
        found[found == self.pairs] = 0
        self.give_pair: Ints = np.where(unique[found] == wanted, found, -1) if self.pairs else np.full(len(wanted), -1)
        own = {
            (e, k): n for n, (e, k) in enumerate(zip(self.needs.entry.tolist(), self.needs.what.tolist(), strict=True))
        }
        edges = zip(self.gives.entry.tolist(), self.gives.what.tolist(), strict=True)
        self.give_own_need: Ints = np.asarray([own.get(edge, -1) for edge in edges], np.int64)

    def _quantities(self, known: Sequence[tuple[int, Capability]]) -> None:
        found: dict[tuple[str, str], int] = {}

        def number(item: Contract) -> int:
            return found.setdefault((item.dimension or "", item.unit or ""), len(found))

        takes = {(i, number(p)) for i, item in known for p in item.parameters if p.dimension}
        gives = {(i, number(o)) for i, item in known for o in item.outputs if o.dimension}
        self.quantities = list(found)
        self.takes_quantity = Edges.of((i, q, 1.0) for i, q in takes)
        self.gives_quantity = Edges.of((i, q, 1.0) for i, q in gives)
        self.converter: Bools = np.zeros(self.size, np.bool_)
        self.source_units: dict[int, frozenset[str]] = {}
        for place, item in known:
            sources = [p for p in item.required_parameters if _names_a_unit(p)]
            if sources and item.effect == "read":
                self.converter[place] = True
                self.source_units[place] = frozenset(unit for p in sources for unit in p.enum)

    def _meanings(self, known: Sequence[tuple[int, Capability]]) -> None:
        """Everything taken and given by meaning (semantic id, else name): edges over one vocabulary."""
        found: dict[str, int] = {}
        takes = {(i, found.setdefault(kind_of(p), len(found))) for i, item in known for p in item.parameters}
        gives = {(i, found.setdefault(kind_of(o), len(found))) for i, item in known for o in item.outputs}
        self.meanings = len(found)
        self.takes_meaning = Edges.of((i, m, 1.0) for i, m in takes)
        self.meanings_given: dict[int, list[int]] = {}
        for place, meaning in sorted(gives):
            self.meanings_given.setdefault(place, []).append(meaning)
        self.meanings_taken: Floats = np.maximum(np.bincount(self.takes_meaning.entry, minlength=self.size), 1.0)
        fields: dict[str, int] = {}
        required = [(i, fields.setdefault(p.name, len(fields))) for i, item in known for p in item.required_parameters]
        self.field_place = fields
        self.required_fields = Edges.of((i, f, 1.0) for i, f in required)
        self.required_count: Floats = np.maximum(np.bincount(self.required_fields.entry, minlength=self.size), 1.0)


def _names_a_unit(parameter: Parameter) -> bool:
    """Whether a parameter says in which unit or currency another one is given."""
    return bool(parameter.enum) and ("unit" in parameter.name or "currency" in parameter.name)
