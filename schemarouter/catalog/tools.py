"""Tools of the OpenAI function format: names that lead back to their route, and contracts read from them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# OpenAI takes [a-zA-Z0-9_-]{1,64} for the name of a function.
MAX_TOOL_NAME = 64
_SEPARATOR = "__"


def tool_name(provider: str, operation: str) -> str:
    """The function name of a route. `route_of` gives the route back, since no provider holds ``__`` or ends in ``_``."""
    return f"{provider}{_SEPARATOR}{operation}"


def tool_of_route(route: str) -> str:
    """The name of a route's tool: ``orders.find`` is called as ``orders__find``."""
    return route.replace(".", _SEPARATOR)


def route_of(tool_name: str) -> str:
    """The route of a tool's name: ``a__b`` and ``a.b`` give ``a.b``, any other name ``tools.<name>``, in snake case."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", tool_name).lower()
    provider, *operation = re.split(rf"{_SEPARATOR}|\.", snake, maxsplit=1)
    parts = [provider, *operation] if any(operation) else ["tools", snake]
    return ".".join(re.sub(r"[^a-z0-9_]+", "_", part) for part in parts)


def read_tool(tool: Any, position: int) -> tuple[str, dict[str, Any], list[str]]:
    """What to call a tool in a message, its contract as `Capability` takes it, and everything that cannot be read.

    A null counts as left out. What cannot be read has a stand-in, so that the rest is judged too. `position` counts from 0.
    """
    problems: list[str] = []
    whole = _object(tool, "tool", problems)
    nested = whole.get("function")
    function = whole if nested is None else _object(nested, "function", problems)
    name = function.get("name")
    if name is None and not problems:
        problems.append("has no name")
    elif name is not None and not isinstance(name, str):
        problems.append(f"name must be a string, got {_shown(name)}")
    known = name if isinstance(name, str) else None
    provider, _, operation = route_of(f"unnamed_{position}" if known is None else known).partition(".")
    contract = {
        "provider": provider,
        "operation": operation,
        "description": function.get("description", ""),
        "effect": "write",
        "parameters": _parameters(function, problems),
        "outputs": _outputs(function, problems),
    }
    return f"#{position}" if known is None else repr(known), contract, problems


def _parameters(function: Mapping[str, Any], problems: list[str]) -> list[dict[str, Any]]:
    place, schema = _schema(function, ("parameters", "inputSchema"), problems)
    properties = _properties(schema, place, problems)
    required = _list(schema, "required", place, problems)
    for name in required:
        if name not in list(properties):
            problems.append(f"{place}.required names {_shown(name)}, which is no property")
    read = []
    for key, item in properties.items():
        inner = f"{place}.properties.{key}"
        field = _field(key, item, inner, problems)
        enum = _list(item, "enum", inner, problems) if field["type"] == "string" else []
        allowed = tuple(value for value in enum if value is not None)
        read.append({**field, "enum": allowed, "required": key in required})
    return read


def _outputs(function: Mapping[str, Any], problems: list[str]) -> list[dict[str, Any]]:
    place, schema = _schema(function, ("outputSchema", "returns"), problems)
    properties = _properties(schema, place, problems)
    return [_field(key, item, f"{place}.properties.{key}", problems) for key, item in properties.items()]


def _schema(function: Mapping[str, Any], keys: tuple[str, str], problems: list[str]) -> tuple[str, Mapping[str, Any]]:
    """The first schema that is given, with the key it stands under."""
    place = next((key for key in keys if function.get(key) is not None), keys[0])
    return place, _object(function.get(place), place, problems)


def _properties(schema: Mapping[str, Any], place: str, problems: list[str]) -> dict[str, Mapping[str, Any]]:
    given = _object(schema.get("properties"), f"{place}.properties", problems)
    # In JSON Schema `true` is the schema that takes everything, as `{}` is.
    return {
        key: _object({} if item is True else item, f"{place}.properties.{key}", problems) for key, item in given.items()
    }


def _field(name: str, schema: Mapping[str, Any], place: str, problems: list[str]) -> dict[str, Any]:
    return {
        "name": name,
        "type": _json_schema_type(schema, place, problems),
        "description": schema.get("description", ""),
    }


def _json_schema_type(schema: Mapping[str, Any], place: str, problems: list[str]) -> str:
    """The JSON type of a property; of several allowed ones the first that is not null, of none string."""
    declared = schema.get("type")
    if declared is None:
        return "string"
    several = [declared] if isinstance(declared, str) else declared
    if isinstance(several, list | tuple) and several and all(isinstance(item, str) for item in several):
        return next((item for item in several if item != "null"), "null")
    problems.append(f"{place}.type must be a type's name or a list of such, got {_shown(declared)}")
    return "string"


def _object(value: Any, place: str, problems: list[str]) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    if value is not None:
        problems.append(f"{place} must be an object, got {_shown(value)}")
    return {}


def _list(schema: Mapping[str, Any], key: str, place: str, problems: list[str]) -> list[Any]:
    value = schema.get(key)
    if isinstance(value, list | tuple):
        return list(value)
    if value is not None:
        problems.append(f"{place}.{key} must be a list, got {_shown(value)}")
    return []


def _shown(value: Any) -> str:
    return repr(value)[:80]
