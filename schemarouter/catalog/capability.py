"""Registered contracts: fields, parameters, capabilities and the catalogs made of them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from schemarouter.canonical import fingerprint
from schemarouter.catalog.tools import MAX_TOOL_NAME, read_tool, tool_name
from schemarouter.errors import SchemaRouterError, unknown
from schemarouter.files import explain, read_json
from schemarouter.invisible import first_invisible

JsonType = Literal["null", "boolean", "integer", "number", "string", "array", "object"]
Effect = Literal["read", "write", "destructive"]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
# Without `__` and a final `_`, so that the first `__` of a tool's name is always the end of its provider.
Provider = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9]*(_[a-z0-9]+)*$", max_length=64)]
SemanticId = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*$")]
Word = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_]*$")]
IDENTIFIER_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}")


class CatalogError(SchemaRouterError):
    """A catalog file or a set of contracts that cannot be used."""


class _Registered(BaseModel):
    """What is registered never changes; a copy with other parts is checked as if it were read."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A validated copy with some parts replaced; what follows from them (a route id) is made anew."""
        return type(self).model_validate(
            {**{name: getattr(self, name) for name in type(self).model_fields}, **(update or {})}
        )


class _FrozenDict(dict[str, str]):
    """A dict that is not changed any more: fingerprints were made of it."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("what is registered does not change; make a copy with model_copy(update=...).")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse


class Contract(_Registered):
    """What is registered of one value: its name, JSON type and meaning."""

    name: Name
    type: JsonType
    description: str = ""
    semantic_id: SemanticId | None = None
    # µ and μ, ℃ and °C, Å and Å are one unit each.
    unit: Annotated[str, AfterValidator(partial(unicodedata.normalize, "NFKC"))] | None = None
    dimension: Name | None = None
    qualifiers: Annotated[dict[Word, Word], AfterValidator(_FrozenDict)] = Field(default_factory=_FrozenDict)
    identifier: bool = False
    enum: tuple[str, ...] = Field(default=(), strict=False)
    example: Any = None

    @model_validator(mode="after")
    def _unit_enum_and_example_fit(self) -> Self:
        problems = []
        if self.unit is not None and self.dimension is None:
            problems.append(f"field {self.name!r} has unit {self.unit!r} but no dimension")
        if self.enum and self.type != "string":
            problems.append(f"field {self.name!r} has an enum but is of type {self.type}; only strings have one")
        if self.unit is not None and (sign := first_invisible(self.unit)):
            problems.append(f"field {self.name!r} has a unit with the invisible character {sign}; write it without")
        if self.example is not None and not matches_type(self.example, self.type):
            problems.append(f"field {self.name!r} is {self.type}, but its example is {type_name(self.example)}")
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @cached_property
    def is_identifier(self) -> bool:
        """Whether a value of this field is a stable identifier: by name, by registration or by semantic id."""
        semantic = self.semantic_id or ""
        return self.identifier or self.name.endswith("_id") or semantic.endswith((".id", ".identifier"))

    @cached_property
    def qualifier_atoms(self) -> tuple[str, ...]:
        """The qualifiers as sorted canonical ``key=value`` atoms."""
        return tuple(sorted(f"{key}={value}" for key, value in self.qualifiers.items()))


class OutputField(Contract):
    """A field that a capability returns."""


class Parameter(Contract):
    """A value that a capability takes."""

    required: bool


class Capability(_Registered):
    """One endpoint: what it takes, what it gives, what it does to the world."""

    provider: Provider
    operation: Name
    description: str
    effect: Effect
    tier: int = Field(default=0, ge=0)
    parameters: tuple[Parameter, ...] = Field(default=(), strict=False)
    outputs: tuple[OutputField, ...] = Field(default=(), strict=False)

    @model_validator(mode="after")
    def _names_are_sound(self) -> Self:
        problems = []
        length = len(tool_name(self.provider, self.operation))
        if length > MAX_TOOL_NAME:
            problems.append(
                f"the tool of {self.route_id} would have a name of {length} characters; at most {MAX_TOOL_NAME} are "
                "allowed, so shorten its provider or operation"
            )
        for kind, group in (("parameter", self.parameters), ("output", self.outputs)):
            names = [item.name for item in group]
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                problems.append(f"{kind} names given twice: {', '.join(twice)}")
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @cached_property
    def route_id(self) -> str:
        """``provider.operation``, the name under which it is called."""
        return f"{self.provider}.{self.operation}"

    @cached_property
    def outputs_by_name(self) -> Mapping[str, OutputField]:
        """Registered outputs by field name."""
        return {item.name: item for item in self.outputs}

    @cached_property
    def parameters_by_name(self) -> Mapping[str, Parameter]:
        """Registered parameters by name."""
        return {item.name: item for item in self.parameters}

    @cached_property
    def required_parameters(self) -> tuple[Parameter, ...]:
        """The parameters a call cannot leave out, in contract order."""
        return tuple(item for item in self.parameters if item.required)

    @property
    def tool_schema(self) -> dict[str, Any]:
        """The tool in the OpenAI function format (a dot is no legal character of a function name there), made anew."""
        properties: dict[str, Any] = {}
        for item in self.parameters:
            schema: dict[str, Any] = {"type": item.type}
            text = item.description
            if item.unit is not None:
                text = f"{text} Unit: {item.unit}.".strip()
            if text:
                schema["description"] = text
            if item.enum:
                schema["enum"] = list(item.enum)
            properties[item.name] = schema
        return {
            "type": "function",
            "function": {
                "name": tool_name(self.provider, self.operation),
                "description": self.description,
                "parameters": {
                    "type": "object",
                    "properties": properties,
                    "required": [item.name for item in self.required_parameters],
                    "additionalProperties": False,
                },
            },
        }

    def argument_errors(self, arguments: Mapping[str, Any]) -> list[str]:
        """Say everything that keeps `arguments` from being valid for this capability; empty when valid."""
        errors = [f"missing required argument {p.name!r}" for p in self.required_parameters if p.name not in arguments]
        for name, value in arguments.items():
            parameter = self.parameters_by_name.get(name)
            if parameter is None:
                errors.append(unknown("argument", str(name), self.parameters_by_name))
            elif not matches_type(value, parameter.type):
                errors.append(f"argument {name!r} must be {parameter.type}, got {type_name(value)}")
            elif parameter.enum and value not in parameter.enum:
                errors.append(f"argument {name!r} must be one of {', '.join(parameter.enum)}, got {value!r}")
        return errors


def json_type(value: Any) -> JsonType:
    """Name the JSON type of a plain Python value. Raises CatalogError for anything else."""
    if value is None:
        return "null"
    kind = type(value)
    if kind is bool:
        return "boolean"
    if kind is int:
        return "integer"
    if kind is float:
        return "number"
    if kind is str:
        return "string"
    if kind is list or kind is tuple:
        return "array"
    if kind is dict:
        return "object"
    raise CatalogError(f"{kind.__name__} is not a JSON type; use plain values.")


def type_name(value: Any) -> str:
    """The JSON type of a value, or of what Python type it is where it has none."""
    try:
        return json_type(value)
    except CatalogError:
        return f"a Python {type(value).__name__}"


def matches_type(value: Any, expected: JsonType) -> bool:
    """Whether a plain value may stand where `expected` is registered; an integer is also a number."""
    try:
        actual = json_type(value)
    except CatalogError:
        return False
    return actual == expected or (expected == "number" and actual == "integer")


class Catalog:
    """An immutable set of capabilities, sorted by route id.

    `name` says which catalog it is (its size, for the nested ones). Raises CatalogError when a route is given twice.
    """

    __slots__ = ("__dict__", "_by_route", "capabilities", "name", "route_ids")

    def __init__(self, capabilities: Iterable[Capability], *, name: str) -> None:
        self.capabilities = tuple(sorted(capabilities, key=lambda item: item.route_id))
        self.name = name
        self.route_ids = tuple(item.route_id for item in self.capabilities)
        self._by_route = {item.route_id: item for item in self.capabilities}
        if len(self._by_route) != len(self.capabilities):
            twice = sorted({route for route in self.route_ids if self.route_ids.count(route) > 1})
            raise CatalogError(f"catalog {name!r} holds a route more than once: {', '.join(twice)}")

    def __len__(self) -> int:
        return len(self.capabilities)

    def __contains__(self, route_id: object) -> bool:
        return route_id in self._by_route

    def get(self, route_id: str) -> Capability | None:
        """The capability of that route, or None when it is not registered."""
        return self._by_route.get(route_id)

    def __getitem__(self, route_id: str) -> Capability:
        found = self._by_route.get(route_id)
        if found is None:
            raise CatalogError(unknown("route", route_id, self.route_ids))
        return found

    @cached_property
    def routes(self) -> frozenset[str]:
        """The route ids as a set."""
        return frozenset(self.route_ids)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over the whole contract of every capability, tiers aside (they say where, not what)."""
        return fingerprint([contract_json(item) for item in self.capabilities])

    def tier(self, size: int) -> Catalog:
        """The nested catalog of exactly `size` capabilities. Raises CatalogError when there is none."""
        chosen = [item for item in self.capabilities if item.tier <= size]
        if len(chosen) != size:
            raise CatalogError(
                f"catalog {size} was asked for, but {len(chosen)} capabilities have a tier up to {size}."
            )
        return Catalog(chosen, name=str(size))


def contract_json(capability: Capability) -> dict[str, Any]:
    """The contract as JSON values, without its tier."""
    return capability.model_dump(mode="json", exclude={"tier"})


class _ProviderFile(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    provider: Provider
    title: str
    about: str
    capabilities: tuple[dict[str, Any], ...] = Field(strict=False)


def _read_provider(path: Path) -> tuple[list[Capability], list[str]]:
    """The capabilities of a provider file that can be used, and everything wrong with its header and the others."""
    raw = read_json(path, CatalogError, path.name)
    problems: list[str] = []
    try:
        _ProviderFile.model_validate(raw)
    except ValidationError as error:
        problems = explain(error)
    whole = raw if isinstance(raw, dict) else {}
    # A header's wrong provider is told once, not again with every capability.
    provider = "provider" if any(line.startswith("provider: ") for line in problems) else whole.get("provider")
    entries = whole.get("capabilities")
    capabilities = []
    for position, entry in enumerate(entries if isinstance(entries, list) else ()):
        if not isinstance(entry, dict):
            continue
        try:
            capabilities.append(Capability.model_validate({"provider": provider, **entry}))
        except ValidationError as error:
            label = entry.get("operation", f"#{position}")
            problems += [f"{label}.{line}" for line in explain(error)]
    return capabilities, problems


def load_catalog(folder: Path, *, name: str = "all") -> Catalog:
    """Read every provider file of a folder. Raises CatalogError with all mistakes of all files at once."""
    capabilities: list[Capability] = []
    problems: list[str] = []
    for path in sorted(folder.glob("*.json")):
        try:
            usable, wrong = _read_provider(path)
        except CatalogError as error:
            problems.append(str(error))
            continue
        capabilities += usable
        if wrong:
            problems.append(f"{path.name}: " + "; ".join(wrong))
    return _catalog_of(capabilities, problems, name)


def _catalog_of(capabilities: list[Capability], problems: list[str], name: str) -> Catalog:
    """The catalog. Raises CatalogError with the problems met so far, one a line, and those of the whole."""
    try:
        catalog = Catalog(capabilities, name=name)
    except CatalogError as error:
        raise CatalogError("\n".join([*problems, str(error)])) from None
    if problems:
        raise CatalogError("\n".join(problems))
    return catalog


def from_openai_tools(tools: Sequence[Mapping[str, Any]], *, name: str = "tools") -> Catalog:
    """Build a catalog from tools in the OpenAI function format, or the like (`inputSchema`, `outputSchema`).

    Routes are those of `route_of`. Outputs are registered where a tool has an output schema (`outputSchema` or `returns`); units
    and semantic ids are not known. Raises CatalogError with everything that cannot be registered, tool by tool.
    """
    if isinstance(tools, str | bytes | Mapping) or not isinstance(tools, Iterable):
        raise CatalogError(f"tools must be a list of tools, got {type_name(tools)}.")
    capabilities: list[Capability] = []
    problems: list[str] = []
    tools_of: dict[str, list[str]] = {}
    for position, tool in enumerate(tools):
        label, contract, wrong = read_tool(tool, position)
        try:
            capability = Capability.model_validate(contract)
        except ValidationError as error:
            wrong += explain(error)
        else:
            if not wrong and capability.route_id not in tools_of:
                capabilities.append(capability)
            tools_of.setdefault(capability.route_id, []).append(label)
        if wrong:
            problems.append(f"tool {label}: " + "; ".join(wrong))
    for route, labels in tools_of.items():
        if len(labels) > 1:
            problems.append(f"tools {' and '.join(labels)} would be one route, {route}; rename all but one")
    return _catalog_of(capabilities, problems, name)
