"""Capabilities as tools: schemas, arguments, and catalogs from somebody else's tools."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from schemarouter.catalog import (
    Capability,
    Catalog,
    CatalogError,
    Parameter,
    from_openai_tools,
    json_type,
    matches_type,
    route_of,
)
from tests.catalog.test_catalog import TYPES, build, callables, jsonschema
from tests.strategies import LAWS, json_values, names

WEIGH = build(
    {
        "provider": "fleet",
        "operation": "weigh",
        "description": "weighs a load",
        "effect": "write",
        "parameters": [
            {"name": "lease_id", "type": "string", "required": True, "description": "which lease"},
            {"name": "limit", "type": "number", "required": False, "unit": "kg", "dimension": "mass"},
            {"name": "mode", "type": "string", "required": False, "enum": ["net", "gross"], "description": "how"},
            {"name": "count", "type": "integer", "required": True},
        ],
    }
)


def test_a_tool_says_name_description_parameters_units_and_what_is_required() -> None:
    assert WEIGH.tool_schema == {
        "type": "function",
        "function": {
            "name": "fleet__weigh",
            "description": "weighs a load",
            "parameters": {
                "type": "object",
                "properties": {
                    "lease_id": {"type": "string", "description": "which lease"},
                    "limit": {"type": "number", "description": "Unit: kg."},
                    "mode": {"type": "string", "description": "how", "enum": ["net", "gross"]},
                    "count": {"type": "integer"},
                },
                "required": ["lease_id", "count"],
                "additionalProperties": False,
            },
        },
    }


@LAWS
@given(capability=callables())
def test_a_tool_schema_is_a_valid_json_schema(capability: Capability) -> None:
    schema = capability.tool_schema["function"]["parameters"]
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft7Validator.check_schema(schema)
    assert list(schema["properties"]) == [item.name for item in capability.parameters]


# JSON Schema takes 1.0 for an integer; here a float is a number.
values = json_values.filter(lambda value: not (isinstance(value, float) and value.is_integer()))


FITTING: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "integer": st.integers(),
    "number": st.integers() | st.floats(0.1, 0.9),
    "string": st.text(max_size=5),
    "array": st.lists(json_values, max_size=2),
    "object": st.dictionaries(names, json_values, max_size=2),
}


@st.composite
def arguments(draw: st.DrawFn, capability: Capability) -> dict[str, Any]:
    """Arguments that are right, or nearly: one more, one less, one of any value."""
    chosen: dict[str, Any] = {}
    for item in capability.parameters:
        if item.required or draw(st.booleans()):
            chosen[item.name] = draw(st.sampled_from(item.enum) if item.enum else FITTING[item.type])
    for change in draw(st.sets(st.sampled_from(["any", "more", "less"]), max_size=1)):
        if change == "more":
            chosen[draw(names)] = draw(values)
        elif chosen:
            name = draw(st.sampled_from(sorted(chosen)))
            chosen |= {name: draw(values)}
            if change == "less":
                del chosen[name]
    return chosen


@LAWS
@given(data=st.data(), capability=callables())
def test_arguments_are_valid_exactly_when_the_tool_schema_says_so(data: st.DataObject, capability: Capability) -> None:
    chosen = data.draw(arguments(capability))
    schema = capability.tool_schema["function"]["parameters"]
    assert (capability.argument_errors(chosen) == []) == jsonschema.Draft202012Validator(schema).is_valid(chosen)


def test_everything_wrong_with_arguments_is_reported_at_once() -> None:
    errors = WEIGH.argument_errors({"lease": "x", "limit": "5", "mode": "nett", "count": True})
    assert errors == [
        "missing required argument 'lease_id'",
        "unknown argument 'lease'. Did you mean 'lease_id'? Known: count, lease_id, limit, mode.",
        "argument 'limit' must be number, got string",
        "argument 'mode' must be one of net, gross, got 'nett'",
        "argument 'count' must be integer, got boolean",
    ]
    assert WEIGH.argument_errors({"lease_id": "a", "count": 1, "limit": 5, "mode": "net"}) == []
    assert WEIGH.argument_errors({"lease_id": "a", "count": 1, "limit": 0.5}) == []


@pytest.mark.parametrize("name", ["a", "lease_id"])
@pytest.mark.parametrize("value", [object(), {1}, b"x", 1j], ids=["object", "set", "bytes", "complex"])
def test_a_value_that_is_no_json_is_an_error_and_no_crash(name: str, value: Any) -> None:
    assert WEIGH.argument_errors({"lease_id": "a", "count": 1, name: value}) != []


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, "null"),
        (True, "boolean"),
        (1, "integer"),
        (1.0, "number"),
        ("", "string"),
        ([], "array"),
        ((), "array"),
        ({}, "object"),
    ],
)
def test_each_plain_value_has_one_type_and_only_integers_are_also_numbers(value: Any, kind: str) -> None:
    assert json_type(value) == kind
    fitting = {expected for expected in TYPES if matches_type(value, expected)}
    assert fitting == {kind} | ({"number"} if kind == "integer" else set())


def test_other_values_have_no_type() -> None:
    with pytest.raises(CatalogError, match="set is not a JSON type"):
        json_type({1})
    assert not matches_type({1}, "array")


@LAWS
@given(items=st.lists(callables(), max_size=4, unique_by=lambda item: item.route_id))
def test_tools_make_a_catalog_of_the_same_tools(items: list[Capability]) -> None:
    catalog = Catalog(items, name="x")
    schemas = [item.tool_schema for item in catalog.capabilities]
    for tools in (schemas, schemas[::-1], [schema["function"] for schema in schemas]):
        again = from_openai_tools(tools, name="y")
        assert again.route_ids == catalog.route_ids
        assert [item.tool_schema for item in again.capabilities] == schemas
        assert again.name == "y"


def registrable(*routes: tuple[str, str]) -> list[Capability]:
    """The capabilities among those that a catalog takes."""
    items = []
    for provider, operation in routes:
        with suppress(ValidationError):
            items.append(Capability(provider=provider, operation=operation, description="", effect="read"))
    return items


@LAWS
@given(provider=names, operation=names)
def test_a_tool_name_leads_back_to_its_route(provider: str, operation: str) -> None:
    for item in registrable((provider, operation)):
        assert route_of(item.tool_schema["function"]["name"]) == item.route_id


@pytest.mark.parametrize("routes", [[("a", "b__c"), ("a__b", "c")], [("a_", "b"), ("a", "b_")]])
def test_underscores_do_not_make_two_routes_one_tool(routes: list[tuple[str, str]]) -> None:
    items = registrable(*routes)
    assert len({item.tool_schema["function"]["name"] for item in items}) == len(items)


def test_every_registrable_name_is_a_legal_function_name() -> None:
    for item in registrable(("p" * 64, "o" * 64), ("p" * 31, "o" * 31)):
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", item.tool_schema["function"]["name"])


@pytest.mark.parametrize(
    ("name", "route"),
    [
        ("billing__get_invoice", "billing.get_invoice"),
        ("billing.get_invoice", "billing.get_invoice"),
        ("get_invoice", "tools.get_invoice"),
        ("getInvoice", "tools.get_invoice"),
        ("get-invoice", "tools.get_invoice"),
        ("a.b.c", "a.b_c"),
        ("a__b__c", "a.b__c"),
    ],
)
def test_a_tool_name_gives_a_route(name: str, route: str) -> None:
    assert route_of(name) == route
    assert from_openai_tools([{"type": "function", "function": {"name": name}}]).route_ids == (route,)


def test_tools_may_use_input_and_output_schemas() -> None:
    tool = {
        "name": "get_weight",
        "description": "d",
        "inputSchema": {"properties": {"id": {"type": ["null", "string"]}, "how": {}}, "required": ["id"]},
        "outputSchema": {"properties": {"mass": {"type": "number", "description": "kg"}}},
    }
    capability = from_openai_tools([tool])["tools.get_weight"]
    assert [(p.name, p.type, p.required) for p in capability.parameters] == [
        ("id", "string", True),
        ("how", "string", False),
    ]
    assert [(o.name, o.type, o.description) for o in capability.outputs] == [("mass", "number", "kg")]
    assert isinstance(capability.parameters[0], Parameter)


@pytest.mark.parametrize(
    "tool",
    [
        {"name": "설비"},
        {"name": ""},
        {"name": "a", "parameters": {"properties": {"x": {"type": "text"}}}},
        {"name": "a", "parameters": {"properties": {"camelCase": {}}}},
        {"name": "a", "description": None},
        {},
        {"description": "no name"},
        {"name": "a", "parameters": {"properties": {"x": {"type": 5}}}},
        {"function": "a"},
    ],
    ids=str,
)
def test_a_tool_that_cannot_be_registered_is_a_catalog_error(tool: dict[str, Any]) -> None:
    with pytest.raises(CatalogError):
        from_openai_tools([tool])


@pytest.mark.parametrize(
    "schema",
    [{"properties": {"x": True}}, {"properties": None}, {"properties": {}, "required": None}, {"properties": []}, []],
    ids=str,
)
def test_an_odd_schema_is_read_or_refused_and_never_a_crash(schema: Any) -> None:
    with suppress(CatalogError):
        assert from_openai_tools([{"name": "a", "parameters": schema}]).route_ids == ("tools.a",)


def test_everything_wrong_with_tools_is_reported_at_once_tool_by_tool() -> None:
    odd = {
        "properties": {"x": {"type": 5, "enum": "ab"}, "y": 7, "z": {"type": []}},
        "required": ["w", ["x"]],
    }
    tools: list[Any] = [
        {"name": "getInvoice"},
        {"name": "get-invoice"},
        {"name": "odd", "parameters": odd, "outputSchema": {"properties": []}},
        {"function": "a"},
        {"description": "no name"},
        "tool",
        {"name": "x" * 60},
    ]
    with pytest.raises(CatalogError) as caught:
        from_openai_tools(tools)
    said = str(caught.value).splitlines()
    assert [line.partition(": ")[0] for line in said[:-1]] == [
        "tool 'odd'", "tool #3", "tool #4", "tool #5", f"tool '{'x' * 60}'",
    ]  # fmt: skip
    for part in (
        "parameters.properties.x.type must be",
        "parameters.properties.x.enum must be a list, got 'ab'",
        "parameters.properties.y must be an object, got 7",
        "parameters.properties.z.type must be",
        "parameters.required names 'w', which is no property",
        "parameters.required names ['x'], which is no property",
        "outputSchema.properties must be an object, got []",
    ):
        assert part in said[0]
    assert "67 characters; at most 64" in said[4]
    assert said[-1].startswith("tools 'getInvoice' and 'get-invoice' would be one route, tools.get_invoice")


@pytest.mark.parametrize("tools", [None, "tools", {"tools": []}], ids=str)
def test_what_is_no_list_of_tools_is_a_catalog_error(tools: Any) -> None:
    with pytest.raises(CatalogError, match="must be a list of tools"):
        from_openai_tools(tools)


def test_null_and_true_in_a_schema_are_as_good_as_nothing_said() -> None:
    tool = {
        "function": None,
        "name": "a",
        "parameters": None,
        "inputSchema": {
            "properties": {"x": True, "y": {"type": None, "enum": None}, "z": {"enum": ["a", None]}},
            "required": None,
        },
        "outputSchema": {"properties": None},
    }
    capability = from_openai_tools([tool])["tools.a"]
    assert [(p.name, p.type, p.enum, p.required) for p in capability.parameters] == [
        ("x", "string", (), False),
        ("y", "string", (), False),
        ("z", "string", ("a",), False),
    ]
    assert capability.outputs == ()


oddities = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.sampled_from(["string", "null"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["function", "name", "parameters", "properties", "required", "type", "enum"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@LAWS
@given(tools=st.lists(oddities | st.fixed_dictionaries({"name": names}, optional={"parameters": oddities}), max_size=3))
def test_whatever_comes_as_tools_makes_a_catalog_or_a_catalog_error(tools: Any) -> None:
    with suppress(CatalogError):
        for item in from_openai_tools(tools).capabilities:
            assert route_of(item.tool_schema["function"]["name"]) == item.route_id
