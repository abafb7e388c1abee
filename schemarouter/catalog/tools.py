"""Tools in the OpenAI function format: their names and routes, and the contracts read from them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# OpenAI allows [a-zA-Z0-9_-]{1,64} for the name of a function.
MAX_TOOL_NAME = 64
_SEPARATOR = "__"


def tool_name(provider: str, operation: str) -> str:
    """The function name of a route; `route_of` is its inverse, since no provider holds ``__`` or ends in ``_``."""
    return f"{provider}{_SEPARATOR}{operation}"


def tool_of_route(route: str) -> str:
    """The name of a route's tool: ``orders.find`` is called as ``orders__find``."""
    return route.replace(".", _SEPARATOR)


def route_of(tool_name: str) -> str:
    """Return the route of a tool, in snake case.

    Args:
        tool_name: The tool's name, as a model calls it.

    Returns:
        ``a.b`` for ``a__b`` and ``a.b``, and ``tools.<name>`` for any other name.

    Example:
        >>> route_of("orders__findOrder"), route_of("getWeather")
        ('orders.find_order', 'tools.get_weather')
    """
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", tool_name).lower()
    provider, *operation = re.split(rf"{_SEPARATOR}|\.", snake, maxsplit=1)
    parts = [provider, *operation] if any(operation) else ["tools", snake]
    return ".".join(re.sub(r"[^a-z0-9_]+", "_", part) for part in parts)


def read_tool(tool: Any, index: int) -> tuple[str, dict[str, Any], list[str]]:
    """Read a tool; null counts as left out, and an unreadable part is replaced so that the rest is checked too.

    Args:
        tool: The tool, in the OpenAI function format or the like.
        index: Its index in the list of tools.

    Returns:
        What errors call the tool, its contract as `Capability` takes it, and everything that cannot be read.
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
    provider, _, operation = route_of(f"unnamed_{index}" if known is None else known).partition(".")
    contract = {
        "provider": provider,
        "operation": operation,
        "description": function.get("description", ""),
        "effect": "write",
        "parameters": _parameters(function, problems),
        "outputs": _outputs(function, problems),
    }
    return f"#{index}" if known is None else repr(known), contract, problems


def _parameters(function: Mapping[str, Any], problems: list[str]) -> list[dict[str, Any]]:
    where, schema = _schema(function, ("parameters", "inputSchema"), problems)
    properties = _properties(schema, where, problems)
    required = _list(schema, "required", where, problems)
    for name in required:
        if name not in list(properties):
            problems.append(f"{where}.required names {_shown(name)}, which is no property")
    parameters = []
    for key, item in properties.items():
        inner = f"{where}.properties.{key}"
        field = _field(key, item, inner, problems)
        enum = _list(item, "enum", inner, problems) if field["type"] == "string" else []
        allowed = tuple(value for value in enum if value is not None)
        parameters.append({**field, "enum": allowed, "required": key in required})
    return parameters


def _outputs(function: Mapping[str, Any], problems: list[str]) -> list[dict[str, Any]]:
    where, schema = _schema(function, ("outputSchema", "returns"), problems)
    properties = _properties(schema, where, problems)
    return [_field(key, item, f"{where}.properties.{key}", problems) for key, item in properties.items()]


def _schema(function: Mapping[str, Any], keys: tuple[str, str], problems: list[str]) -> tuple[str, Mapping[str, Any]]:
    """The first of `keys` that is given, and the schema under it."""
    where = next((key for key in keys if function.get(key) is not None), keys[0])
    return where, _object(function.get(where), where, problems)


def _properties(schema: Mapping[str, Any], where: str, problems: list[str]) -> dict[str, Mapping[str, Any]]:
    given = _object(schema.get("properties"), f"{where}.properties", problems)
    # In JSON Schema `true` is the schema that allows everything, as `{}` is.
    return {
        key: _object({} if item is True else item, f"{where}.properties.{key}", problems) for key, item in given.items()
    }


def _field(name: str, schema: Mapping[str, Any], where: str, problems: list[str]) -> dict[str, Any]:
    return {
        "name": name,
        "type": _json_schema_type(schema, where, problems),
        "description": schema.get("description", ""),
    }


def _json_schema_type(schema: Mapping[str, Any], where: str, problems: list[str]) -> str:
    """The JSON type of a property: of several the first that is not null; string where none is given."""
    declared = schema.get("type")
    if declared is None:
        return "string"
    several = [declared] if isinstance(declared, str) else declared
    if isinstance(several, list | tuple) and several and all(isinstance(item, str) for item in several):
        return next((item for item in several if item != "null"), "null")
    problems.append(f"{where}.type must be a type's name or a list of such, got {_shown(declared)}")
    return "string"


def _object(value: Any, where: str, problems: list[str]) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    if value is not None:
        problems.append(f"{where} must be an object, got {_shown(value)}")
    return {}


def _list(schema: Mapping[str, Any], key: str, where: str, problems: list[str]) -> list[Any]:
    value = schema.get(key)
    if isinstance(value, list | tuple):
        return list(value)
    if value is not None:
        problems.append(f"{where}.{key} must be a list, got {_shown(value)}")
    return []


def _shown(value: Any) -> str:
    return repr(value)[:80]
