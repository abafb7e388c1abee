"""Contracts compiled into arrays: what each entry needs and gives, by kind of identifier and by quantity.

A *kind* is a semantic id where one is registered, else a field name. A needed name is also given by a field whose name is its
end (``origin_location_id`` by ``location_id``), which matches catalogs without semantic ids. A *quantity* is a dimension with a
unit. Entries are sorted by id, and arrays of edges by entry; entries, kinds and the rest are referred to by their index.
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
# Weight of a name that only ends in the other, against 1 for the same name.
_BY_SUFFIX = 0.8


def kind_of(item: Contract) -> str:
    """Return the kind of a field: its semantic id, else its name."""
    return item.semantic_id or item.name


def provider_of(entry: Entry) -> str:
    """Return the provider of an entry: the registered one, else the part of its id before the first dot."""
    return entry.capability.provider if entry.capability is not None else entry.id.partition(".")[0]


@dataclass(frozen=True)
class Edges:
    """Weighted pairs of an entry and something of it, sorted by entry.

    Attributes:
        entry: Index of the entry, shape (n_edges,), int64.
        what: Index of the other, shape (n_edges,), int64.
        weight: Shape (n_edges,), float64.
    """

    entry: Ints
    what: Ints
    weight: Floats

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, int, float]]) -> Edges:
        """Build from triples of entry, other and weight."""
        rows = sorted(pairs)
        entry, what, weight = zip(*rows, strict=True) if rows else ((), (), ())
        return cls(np.asarray(entry, np.int64), np.asarray(what, np.int64), np.asarray(weight, np.float64))

    @cached_property
    def _runs(self) -> tuple[Ints, Ints]:
        """The entries that have edges, and the index of the first edge of each."""
        entries, starts = np.unique(self.entry, return_index=True)
        return entries, starts.astype(np.int64)

    def maximum(self, values: Floats | Bools, size: int) -> Floats:
        """Return the largest of `values` (one an edge, at least 0) for each entry, shape (size,); 0 without edges."""
        largest = np.zeros(size)
        entries, starts = self._runs
        if len(entries):
            largest[entries] = np.maximum.reduceat(values, starts)
        return largest

    def total(self, values: Floats | Bools, size: int) -> Floats:
        """Return the sum of `values` (one an edge) for each entry, shape (size,)."""
        return np.bincount(self.entry, weights=values, minlength=size).astype(np.float64)


@dataclass(frozen=True)
class Examples:
    """Registered examples that are identifiers.

    Attributes:
        entry: Index of the entry, shape (n_examples,), int64.
        what: Index of the example's shape in `shapes`, shape (n_examples,), int64.
        kind: Index of the parameter's kind, shape (n_examples,), int64; -1 where no entry needs that kind.
        shapes: The different shapes.
    """

    entry: Ints
    what: Ints
    kind: Ints
    shapes: tuple[Shape, ...]

    @classmethod
    def of(cls, known: Sequence[tuple[int, Capability]], kind_index: Mapping[str, int]) -> Examples:
        """Collect the examples of the parameters of capabilities, each given with the index of its entry."""
        shapes: dict[Shape, int] = {}
        rows = [
            (
                index,
                shapes.setdefault(shape(item.example), len(shapes)),
                kind_index.get(kind_of(item), -1) if item.is_identifier else -1,
            )
            for index, capability in known
            for item in capability.parameters
            if item.type == "string" and isinstance(item.example, str) and is_literal(item.example)
        ]
        entry, what, kind = np.asarray(rows, np.int64).reshape(-1, 3).T
        return cls(entry, what, kind, tuple(shapes))


class Contracts:
    """The contracts of entries as arrays; an entry without a capability needs and gives nothing.

    Args:
        entries: The entries, sorted by id.

    Attributes:
        size: Number of entries, n.
        position: Index of an entry by its id.
        provider: Index of each entry's provider in `providers`, shape (n,).
        read: Which entries only read, shape (n,).
        destructive: Which entries are destructive, shape (n,).
        outputs: Names of each entry's outputs.
        needs: Edges to the kinds of identifiers that an entry requires, weighted by how many of each.
        gives: Edges to the kinds of identifiers that it returns.
        need_pair: For each edge of `needs`, the index of its pair of provider and kind, below `pairs`.
        give_pair: For each edge of `gives`, the index of that pair; -1 where nothing in its provider needs the kind.
        give_own_need: For each edge of `gives`, the edge of `needs` of the same entry and kind; -1 where there is none.
        takes_quantity: Edges to the quantities in `quantities` that it takes; `gives_quantity` those that it returns.
        converter: Which entries convert units, shape (n,); `source_units` from which units, by entry.
        takes_meaning: Edges to what it takes, by semantic id or name; `meanings_given` what it returns, by entry.
        required_fields: Edges to the names of its required parameters, indexed by `field_index`.
        examples: The registered examples.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.size = len(entries)
        self.position = {entry.id: index for index, entry in enumerate(entries)}
        capabilities = [entry.capability for entry in entries]
        known = [(index, item) for index, item in enumerate(capabilities) if item is not None]
        names = [provider_of(entry) for entry in entries]
        self.providers = sorted(set(names))
        provider_index = {name: index for index, name in enumerate(self.providers)}
        self.provider: Ints = np.asarray([provider_index[name] for name in names], np.int64)
        self.read: Bools = np.ones(self.size, np.bool_)
        self.destructive: Bools = np.zeros(self.size, np.bool_)
        for index, item in known:
            self.read[index] = item.effect == "read"
            self.destructive[index] = item.effect == "destructive"
        self.outputs = [frozenset(o.name for o in item.outputs) if item else frozenset() for item in capabilities]
        self._identifiers(known)
        self._quantities(known)
        self._meanings(known)
        self.examples = Examples.of(known, self.kind_index)

    def _identifiers(self, known: Sequence[tuple[int, Capability]]) -> None:
        counts: dict[tuple[int, str], int] = {}
        for index, item in known:
            for parameter in item.required_parameters:
                if parameter.is_identifier:
                    key = (index, kind_of(parameter))
                    counts[key] = counts.get(key, 0) + 1
        self.kinds = sorted({kind for _, kind in counts})
        self.kind_index = {kind: index for index, kind in enumerate(self.kinds)}
        self.needs = Edges.of((index, self.kind_index[kind], float(n)) for (index, kind), n in counts.items())
        names = [kind for kind in self.kinds if "." not in kind]
        suffixes: dict[str, list[str]] = {}
        for kind in names:
            parts = kind.split("_")
            for cut in range(1, len(parts) - 1):
                suffixes.setdefault("_".join(parts[cut:]), []).append(kind)
        self.suffixes = suffixes
        gives: dict[tuple[int, int], float] = {}
        for index, item in known:
            for output in item.outputs:
                for kind, weight in self._given_by(output):
                    edge = (index, self.kind_index[kind])
                    gives[edge] = max(gives.get(edge, 0.0), weight)
        self.gives = Edges.of((index, kind, weight) for (index, kind), weight in gives.items())
        self._pair_up()

    def _given_by(self, output: Contract) -> Iterable[tuple[str, float]]:
        kind = kind_of(output)
        if kind in self.kind_index:
            yield kind, 1.0
        for longer in self.suffixes.get(output.name, ()) if output.semantic_id is None else ():
            yield longer, _BY_SUFFIX

    def _pair_up(self) -> None:
        """Match the edges of gives to those of needs, in the same provider and in the same entry."""
        pairs = self.provider[self.needs.entry] * (len(self.kinds) or 1) + self.needs.what
        unique, self.need_pair = np.unique(pairs, return_inverse=True)
        self.pairs = len(unique)
        wanted = self.provider[self.gives.entry] * (len(self.kinds) or 1) + self.gives.what
        at = np.searchsorted(unique, wanted)
        at[at == self.pairs] = 0
        self.give_pair: Ints = np.where(unique[at] == wanted, at, -1) if self.pairs else np.full(len(wanted), -1)
        own = {
            (e, k): n for n, (e, k) in enumerate(zip(self.needs.entry.tolist(), self.needs.what.tolist(), strict=True))
        }
        edges = zip(self.gives.entry.tolist(), self.gives.what.tolist(), strict=True)
        self.give_own_need: Ints = np.asarray([own.get(edge, -1) for edge in edges], np.int64)

    def _quantities(self, known: Sequence[tuple[int, Capability]]) -> None:
        quantities: dict[tuple[str, str], int] = {}

        def number(item: Contract) -> int:
            return quantities.setdefault((item.dimension or "", item.unit or ""), len(quantities))

        takes = {(i, number(p)) for i, item in known for p in item.parameters if p.dimension}
        gives = {(i, number(o)) for i, item in known for o in item.outputs if o.dimension}
        self.quantities = list(quantities)
        self.takes_quantity = Edges.of((i, q, 1.0) for i, q in takes)
        self.gives_quantity = Edges.of((i, q, 1.0) for i, q in gives)
        self.converter: Bools = np.zeros(self.size, np.bool_)
        self.source_units: dict[int, frozenset[str]] = {}
        for index, item in known:
            sources = [p for p in item.required_parameters if _names_a_unit(p)]
            if sources and item.effect == "read":
                self.converter[index] = True
                self.source_units[index] = frozenset(unit for p in sources for unit in p.enum)

    def _meanings(self, known: Sequence[tuple[int, Capability]]) -> None:
        """Edges of everything taken and given, identifier or not, over one vocabulary of kinds."""
        meanings: dict[str, int] = {}
        takes = {(i, meanings.setdefault(kind_of(p), len(meanings))) for i, item in known for p in item.parameters}
        gives = {(i, meanings.setdefault(kind_of(o), len(meanings))) for i, item in known for o in item.outputs}
        self.meanings = len(meanings)
        self.takes_meaning = Edges.of((i, m, 1.0) for i, m in takes)
        self.meanings_given: dict[int, list[int]] = {}
        for index, meaning in sorted(gives):
            self.meanings_given.setdefault(index, []).append(meaning)
        self.meanings_taken: Floats = np.maximum(np.bincount(self.takes_meaning.entry, minlength=self.size), 1.0)
        fields: dict[str, int] = {}
        required = [(i, fields.setdefault(p.name, len(fields))) for i, item in known for p in item.required_parameters]
        self.field_index = fields
        self.required_fields = Edges.of((i, f, 1.0) for i, f in required)
        self.required_count: Floats = np.maximum(np.bincount(self.required_fields.entry, minlength=self.size), 1.0)


def _names_a_unit(parameter: Parameter) -> bool:
    """Whether a parameter names the unit or currency of another one."""
    return bool(parameter.enum) and ("unit" in parameter.name or "currency" in parameter.name)
