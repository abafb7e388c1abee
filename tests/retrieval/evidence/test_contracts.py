"""Contracts as arrays against the same things reckoned with plain dictionaries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemarouter.catalog import Capability
from schemarouter.retrieval.base import Entry
from schemarouter.retrieval.evidence.contracts import Contracts, Edges, kind_of, provider_of
from schemarouter.retrieval.evidence.flow import INDEX, History
from tests.retrieval.evidence.worlds import catalogs, executed
from tests.retrieval.typed import typed
from tests.strategies import laws
from tests.toys import capability

FEW = laws(40)


def needs(entries: Sequence[Entry]) -> dict[tuple[str, str], int]:
    """How many identifiers of a kind each entry requires."""
    return Counter(
        (entry.id, kind_of(parameter))
        for entry in entries
        for parameter in (entry.capability.parameters if entry.capability else ())
        if parameter.required and parameter.is_identifier
    )


def gives(entries: Sequence[Entry]) -> dict[tuple[str, str], float]:
    """How surely each entry gives an identifier of a kind that some entry requires."""
    kinds = {kind for _, kind in needs(entries)}
    found: dict[tuple[str, str], float] = {}
    for entry in entries:
        for output in entry.capability.outputs if entry.capability else ():
            for kind in kinds:
                named = output.semantic_id is None and "_" in output.name and kind.endswith(f"_{output.name}")
                weight = 1.0 if kind_of(output) == kind else 0.8 if named else 0.0
                if weight:
                    found[entry.id, kind] = max(weight, found.get((entry.id, kind), 0.0))
    return found


def read_back(entries: Sequence[Entry], contracts: Contracts, edges: Edges) -> dict[tuple[str, str], float]:
    """Edges by names."""
    rows = zip(edges.entry.tolist(), edges.what.tolist(), edges.weight.tolist(), strict=True)
    return {(entries[entry].id, contracts.kinds[what]): weight for entry, what, weight in rows}


@FEW
@given(entries=catalogs())
def test_needs_and_gives_are_what_the_contracts_say(entries: list[Entry]) -> None:
    contracts = Contracts(entries)
    assert read_back(entries, contracts, contracts.needs) == needs(entries)
    assert read_back(entries, contracts, contracts.gives) == gives(entries)
    for edges in (contracts.needs, contracts.gives):
        assert (np.diff(edges.entry) >= 0).all()


@FEW
@given(entries=catalogs())
def test_pairs_meet_where_one_provider_needs_what_another_entry_of_it_gives(entries: list[Entry]) -> None:
    contracts = Contracts(entries)
    provider = {entry.id: provider_of(entry) for entry in entries}
    wanted, given_by = list(needs(entries)), list(read_back(entries, contracts, contracts.gives))
    required = list(read_back(entries, contracts, contracts.needs))
    pairs = {(provider[entry], kind) for entry, kind in wanted}
    assert contracts.pairs == len(pairs)
    for (entry, kind), pair, own in zip(given_by, contracts.give_pair, contracts.give_own_need, strict=True):
        same = {
            (provider[required[edge][0]], required[edge][1]) for edge in np.flatnonzero(contracts.need_pair == pair)
        }
        assert same == ({(provider[entry], kind)} & pairs)
        assert (required[own] if own >= 0 else None) == ((entry, kind) if (entry, kind) in required else None)


@FEW
@given(entries=catalogs(min_size=1), data=st.data())
def test_missing_is_what_is_needed_less_what_was_observed(entries: list[Entry], data: st.DataObject) -> None:
    ran = data.draw(st.lists(st.integers(0, len(entries) - 1), unique=True, max_size=3))
    state = executed([entries[index] for index in ran])
    retriever = typed(entries)
    contracts = retriever.contracts
    history = History.of(state, contracts)
    done = {entries[index].id for index in np.flatnonzero(history.finished)}
    assert done >= set(state.executed_registered_route_ids)
    seen = {*state.observation_semantic_ids, *state.observation_field_names}
    lacking: Counter[str] = Counter()
    for (taker, kind), count in needs(entries).items():
        known = kind in seen or any("_" in name and kind.endswith(f"_{name}") and "." not in kind for name in seen)
        givers = sum(giver in done for giver, what in gives(entries) if what == kind)
        lacking[taker] += max(count - max(givers, 1), 0) if known else count
    table = retriever.features(state.original_query, state, np.zeros(len(entries)))
    for row, entry in zip(table, entries, strict=True):
        features = {name: row[INDEX[name]] for name in ("ready", "one_missing", "more_missing", "missing_unnamed")}
        missing = lacking[entry.id]
        assert features == {
            "ready": missing == 0, "one_missing": missing == 1, "more_missing": missing > 1, "missing_unnamed": missing > 0
        }  # fmt: skip


@FEW
@given(entries=catalogs())
def test_meanings_and_fields_are_what_the_contracts_say(entries: list[Entry]) -> None:
    contracts = Contracts(entries)
    for index, entry in enumerate(entries):
        item = entry.capability
        taken = {kind_of(p) for p in item.parameters} if item else set()
        given_by = {kind_of(o) for o in item.outputs} if item else set()
        common = set(contracts.takes_meaning.what[contracts.takes_meaning.entry == index].tolist())
        assert len(common) == len(taken)
        assert contracts.meanings_taken[index] == max(len(taken), 1)
        assert len(contracts.meanings_given.get(index, [])) == len(given_by)
        assert len(common & set(contracts.meanings_given.get(index, []))) == len(taken & given_by)
        assert contracts.required_count[index] == max(len(item.required_parameters) if item else 0, 1)
        assert contracts.read[index] == (item is None or item.effect == "read")
        assert contracts.destructive[index] == (item is not None and item.effect == "destructive")


@FEW
@given(rows=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.floats(0, 9)), max_size=9))
def test_maximum_and_total_go_over_the_edges_of_an_entry(rows: list[tuple[int, int, float]]) -> None:
    edges = Edges.of(rows)
    for index in range(5):
        weights = [weight for entry, _, weight in rows if entry == index]
        assert edges.maximum(edges.weight, 5)[index] == max(weights, default=0.0)
        assert edges.total(edges.weight, 5)[index] == pytest.approx(sum(weights))


def only(item: Capability) -> Contracts:
    return Contracts([Entry(item.route_id, "", item)])


MASS = {"name": "mass", "type": "number", "unit": "kg", "dimension": "mass"}
UNIT = {"name": "mass_unit", "type": "string", "enum": ["kg", "t"]}


def test_a_converter_reads_and_requires_a_unit() -> None:
    contracts = only(capability("u.convert", "read", [MASS, UNIT], [{**MASS, "name": "out", "unit": "t"}]))
    assert contracts.converter.tolist() == [True]
    assert contracts.source_units == {0: frozenset({"kg", "t"})}
    for effect, parameter in (
        ("write", UNIT),
        ("read", {**UNIT, "required": False}),
        ("read", {"name": "mass_unit", "type": "string"}),
        ("read", {**UNIT, "name": "colour"}),
    ):
        assert not only(capability("u.convert", effect, [MASS, parameter], [])).converter.any()


def test_a_quantity_is_a_dimension_with_a_unit_and_the_same_for_takers_and_givers() -> None:
    contracts = only(capability("u.convert", "read", [MASS], [MASS, {**MASS, "name": "out", "unit": "t"}]))
    assert sorted(contracts.quantities) == [("mass", "kg"), ("mass", "t")]
    taken = contracts.takes_quantity.what.tolist()
    assert [contracts.quantities[index] for index in taken] == [("mass", "kg")]
    assert contracts.gives_quantity.what.size == 2


def test_entries_without_a_contract_need_and_give_nothing() -> None:
    contracts = Contracts([Entry("a.x", "mass"), Entry("plain", "order_id")])
    assert contracts.providers == ["a", "plain"]
    assert contracts.read.all() and not contracts.destructive.any()
    assert not contracts.kinds and not contracts.quantities and not contracts.examples.shapes
    assert contracts.needs.entry.size == contracts.gives.entry.size == 0
