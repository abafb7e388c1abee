"""Your own tools and loop around a condition: at most three tools are shown, and what was observed brings in the next."""

from typing import Any

from conditions.registry import make_condition
from preregistration.protocol import load_protocol
from schemarouter.catalog import from_openai_tools
from schemarouter.retrieval.registry import build_retriever
from schemarouter.state import Call, Observation


def tool(name: str, description: str, takes: str, gives: str) -> dict[str, Any]:
    """A tool in the OpenAI format; `returns` registers its output, which the state would leave out otherwise."""
    needs = {"type": "object", "properties": {takes: {"type": "string"}}, "required": [takes]}
    returns = {"type": "object", "properties": {gives: {"type": "string"}}}
    return {"name": name, "description": description, "parameters": needs, "returns": returns}


CATALOG = from_openai_tools(
    [
        tool("orders__find", "Find an order by its number.", "order_number", "buyer_id"),
        tool("people__profile", "Name and mailbox of a person.", "buyer_id", "mailbox"),
        tool("outbox__write", "Write to a mailbox.", "mailbox", "receipt_id"),
        tool("trains__timetable", "Trains in the order in which they leave.", "station", "departures"),
        tool("weather__today", "Weather of a place.", "place", "forecast"),
    ]
)
RESULTS = {"orders.find": {"buyer_id": "B-12"}, "people.profile": {"mailbox": "ann@example.org"}, "outbox.write": {}}
for name in ("SR-5-STATIC", "SR-5-STATE-AWARE"):
    rules = load_protocol().conditions.model_copy(update={"top_k": 3})
    condition = make_condition(name, build_retriever("bm25", CATALOG), CATALOG, rules)
    condition.open("Let whoever placed order 4471 know that it is late")
    values = {"order_number": "4471"}
    for route, result in RESULTS.items():  # Your model would choose among condition.exposure.routes.
        print(f"{name}: {route} {'called' if route in condition.exposure.routes else 'NOT SHOWN'}")
        if route in condition.exposure.routes:
            arguments = {item.name: values[item.name] for item in CATALOG[route].parameters}
            condition.observe(Call(route, arguments), Observation("ran", result))
            values |= result
