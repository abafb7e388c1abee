"""Registered contracts: output fields, parameters and the capabilities made of them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from functools import cached_property, partial
from typing import Annotated, Any, Literal, NoReturn, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

from schemarouter.catalog.tools import MAX_TOOL_NAME, tool_name
from schemarouter.errors import SchemaRouterError, unknown
from schemarouter.invisible import first_invisible

JsonType = Literal["null", "boolean", "integer", "number", "string", "array", "object"]
Effect = Literal["read", "write", "destructive"]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
# Without `__` and a final `_`, so that the first `__` of a tool's name always ends its provider.
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
        parts = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self).model_validate({**parts, **(update or {})})


class _FrozenDict(dict[str, str]):
    """A dict that is not changed any more: fingerprints were made of it."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("what is registered does not change; make a copy with model_copy(update=...).")

    def __reduce__(self) -> tuple[type[_FrozenDict], tuple[dict[str, str]]]:
        # Else a copy, or another process, would fill it item by item.
        return type(self), (dict(self),)

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse


class Contract(_Registered):
    """What is registered of one value: its name, JSON type and meaning.

    Attributes:
        name: Its name in calls and observations.
        type: Its JSON type.
        description: What it is, in words.
        semantic_id: What it means, as ``thing.property``; equal ids mean the same.
        unit: Its unit of measurement, such as ``kg``; needs a dimension.
        dimension: What the unit measures, such as ``mass``.
        qualifiers: What narrows the meaning, by key.
        identifier: Whether its values are stable identifiers.
        enum: The values allowed, for strings; empty where all are.
        example: A value of it.
    """

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
    """A value that a capability takes; `required` says whether a call must give it."""

    required: bool


class Capability(_Registered):
    """One endpoint: what it takes, what it returns, and whether it changes anything.

    Attributes:
        provider: Who offers it, such as ``orders``.
        operation: What it does, such as ``find``.
        description: The same in words.
        effect: ``read``, ``write``, or ``destructive``, which runs only where the user authorised that very route.
        tier: Size of the smallest nested catalog that holds it; 0 for every one.
        parameters: What a call takes.
        outputs: What a call returns, where that is registered.

    Example:
        >>> Capability(provider="orders", operation="find", description="Find an order.", effect="read").route_id
        'orders.find'
    """

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
        """``provider.operation``, the id under which it is ranked, shown and called."""
        return f"{self.provider}.{self.operation}"

    @cached_property
    def outputs_by_name(self) -> Mapping[str, OutputField]:
        """The registered outputs by name."""
        return {item.name: item for item in self.outputs}

    @cached_property
    def parameters_by_name(self) -> Mapping[str, Parameter]:
        """The registered parameters by name."""
        return {item.name: item for item in self.parameters}

    @cached_property
    def required_parameters(self) -> tuple[Parameter, ...]:
        """The parameters that a call must give, in the order of the contract."""
        return tuple(item for item in self.parameters if item.required)

    @property
    def tool_schema(self) -> dict[str, Any]:
        """The tool in the OpenAI function format; its name is the route with ``__``, since a dot is not allowed there."""
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
        """Check the arguments of a call against the registered parameters.

        Args:
            arguments: The arguments by name, as plain JSON values.

        Returns:
            Everything that is wrong, one sentence each; empty where the arguments are valid.
        """
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
    """Return the JSON type of a plain Python value. Raises CatalogError for a value of any other type."""
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
    """Return the JSON type of a value for a message, or its Python type where it has none."""
    try:
        return json_type(value)
    except CatalogError:
        return f"a Python {type(value).__name__}"


def matches_type(value: Any, expected: JsonType) -> bool:
    """Whether a value is of the JSON type `expected`; an integer is also a number."""
    try:
        actual = json_type(value)
    except CatalogError:
        return False
    return actual == expected or (expected == "number" and actual == "integer")
