"""A yard of seventeen endpoints in which every feature of the typed retriever can be computed by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from schemarouter.catalog import Capability, Catalog
from schemarouter.retrieval.base import entries_of
from schemarouter.retrieval.evidence.flow import INDEX
from schemarouter.retrieval.typed import Typed
from schemarouter.state import Call, ExecutionState, Observation
from tests.retrieval.typed import typed

Field = Mapping[str, Any]
# The log odds of an entry that nothing wants: multiplied by these odds a value is 0.
UNLIKELY = -40.0

NAME = {"name": "name", "type": "string"}
ITEM = {"name": "item_id", "type": "string", "semantic_id": "item.id", "example": "ITM-1"}
SITE = {"name": "site", "type": "string", "semantic_id": "site.id"}
FROM, TO = ({**SITE, "name": name} for name in ("from_site", "to_site"))
DOCK, START_DOCK = ({"name": name, "type": "string"} for name in ("dock_id", "start_dock_id"))
MASS = {"name": "mass", "type": "number", "semantic_id": "item.mass", "dimension": "mass", "unit": "kg"}
LOAD = {"name": "load", "type": "number", "semantic_id": "load.mass", "dimension": "mass", "unit": "t"}
LENGTH = {"name": "length", "type": "number", "semantic_id": "item.length", "dimension": "length", "unit": "m"}
METRIC = {"name": "mass_unit", "type": "string", "enum": ["kg", "g"]}
POUNDS = {"name": "mass_unit", "type": "string", "enum": ["lb"]}


def endpoint(
    route: str, about: str, takes: Sequence[Field], gives: Sequence[Field], effect: str = "read"
) -> Capability:
    provider, _, operation = route.partition(".")
    fields = {"provider": provider, "operation": operation, "description": about, "effect": effect}
    required = [{"required": True, **item} for item in takes]
    return Capability.model_validate({**fields, "parameters": required, "outputs": list(gives)})


def text(name: str) -> Field:
    return {"name": name, "type": "string"}


YARD = Catalog(
    [
        endpoint("stock.find", "", [NAME], [ITEM, text("note")]),
        endpoint("stock.weigh", "", [ITEM], [MASS]),
        endpoint("stock.copy", "", [ITEM], [ITEM], "write"),
        endpoint("stock.move", "", [ITEM, FROM, TO], [text("shelf")], "write"),
        endpoint("stock.scrap", "", [ITEM], [text("receipt")], "destructive"),
        endpoint("stock.unlock", "the record", [ITEM], [text("owner")], "write"),
        endpoint("stock.audit", "a record", [NAME], [text("audit")]),
        endpoint("sites.find", "", [NAME], [SITE]),
        endpoint("sites.nearest", "", [NAME], [SITE]),
        endpoint("sites.place", "", [ITEM, SITE], [text("placed")], "write"),
        endpoint("sites.unlock", "the record", [SITE], [text("keeper")], "write"),
        endpoint("docks.list", "", [NAME], [DOCK]),
        endpoint("docks.leave", "", [START_DOCK], [text("left")], "write"),
        endpoint("crane.lift", "", [LOAD], [text("lift")], "write"),
        endpoint("crane.reach", "", [LENGTH], [text("reach")]),
        endpoint("units.convert", "", [MASS, METRIC], [LOAD]),
        endpoint("units.imperial", "", [{**MASS, "unit": "lb"}, POUNDS], [LOAD]),
    ],
    name="yard",
)
QUERY = "Something else"


@cache
def yard() -> Typed:
    return typed(entries_of(YARD))


def ran(*routes: str, error: str = "", query: str = QUERY) -> ExecutionState:
    """The state after these routes gave all they register; the last one failed where an error is given."""
    state = ExecutionState.start(query)
    for index, route in enumerate(routes):
        item = YARD[route]
        values = {output.name: 2.5 if output.type == "number" else f"{output.name}-1" for output in item.outputs}
        failed = error and index == len(routes) - 1
        seen = Observation("error", {"status": "error", "error": error}) if failed else Observation("ran", values)
        state = state.observe(Call(route, {}), seen, item, incomplete=True)
    return state


def feature(name: str, state: ExecutionState, **wanted: float) -> dict[str, float]:
    """One feature by route, where it is not 0; `wanted` holds log odds by route, with ``_`` for the dot."""
    made = yard()
    log_odds = np.asarray([wanted.get(route.replace(".", "_"), UNLIKELY) for route in made.ids])
    column = made.features(state.original_query, state, log_odds)[:, INDEX[name]]
    return {route: round(value, 6) for route, value in zip(made.ids, column.tolist(), strict=True) if abs(value) > 1e-6}
