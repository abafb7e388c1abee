"""Small random catalogs whose fields meet often, and states in which some of their routes have run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from schemarouter.catalog import Capability, OutputField, Parameter
from schemarouter.retrieval.base import Entry, describe
from schemarouter.state import Call, ExecutionState, Observation

NAMES = ["order_id", "location_id", "origin_location_id", "new_origin_location_id", "id", "mass", "code", "my_order_id"]
fields: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "name": st.sampled_from(NAMES),
        "type": st.just("string"),
        "semantic_id": st.sampled_from([None, None, "order.id", "location.id", "load.mass"]),
        "identifier": st.sampled_from([False, False, True]),
    }
)
sets = st.lists(fields, max_size=4, unique_by=lambda field: str(field["name"]))


@st.composite
def catalogs(draw: st.DrawFn, *, min_size: int = 0) -> list[Entry]:
    """From `min_size` to six entries, sorted by id; some of them are plain text."""
    made = []
    for number in range(draw(st.integers(min_size, 6))):
        provider = draw(st.sampled_from(["a", "b"]))
        item = Capability(
            provider=provider,
            operation=f"do_{number}",
            description="",
            effect=draw(st.sampled_from(["read", "write", "destructive"])),
            parameters=tuple(Parameter(required=draw(st.integers(0, 3)) > 0, **field) for field in draw(sets)),
            outputs=tuple(OutputField(**field) for field in draw(sets)),
        )
        plain = draw(st.integers(0, 5)) == 0
        made.append(Entry(item.route_id, describe(item), None if plain else item))
    return sorted(made, key=lambda entry: entry.id)


def executed(entries: Sequence[Entry], *, query: str = "Weigh it") -> ExecutionState:
    """The state after each of these entries with a contract has run and given all its outputs."""
    state = ExecutionState.start(query)
    for item in (entry.capability for entry in entries):
        if item is not None:
            given = {output.name: f"x{index}" for index, output in enumerate(item.outputs)}
            state = state.observe(Call(item.route_id, {}), Observation("ran", given), item, incomplete=True)
    return state
