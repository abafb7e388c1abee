"""Spec strings, which name retrievers and agents with their arguments; they are parsed, stored and hashed.

Grammar::

    spec     = name [ "(" argument { "," argument } ")" ]
    argument = spec                     a nested spec, by position
             | key "=" value            a value is a word, a quoted string, or a nested spec with parentheses

A word holds ``[A-Za-z0-9._/:@+-]``; any other string, such as a path with a space, is written in double quotes with JSON's
escapes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType

import orjson

from schemarouter.errors import UsageError, unknown

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_WORD = re.compile(r"[A-Za-z0-9._/:@+-]+")
_QUOTED = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_QUOTES = "(a value with characters other than letters, digits and ._/:@+- must be in double quotes)"
_MAX_DEPTH = 16


class SpecError(UsageError):
    """A spec string that does not parse, or that asks for something unknown."""


@dataclass(frozen=True, slots=True)
class Spec:
    """A name with nested specs by position and arguments by key; ``str(spec)`` is its canonical spelling.

    Attributes:
        name: The registered name.
        nested: The nested specs, in order.
        arguments: The arguments by key, sorted; values are words, strings or specs.

    Raises:
        SpecError: For a name or key that is not spelled as one.
    """

    name: str
    nested: tuple[Spec, ...] = ()
    arguments: Mapping[str, str | Spec] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise SpecError(f"{self.name!r} is not a name; names look like bm25 or use-m3.")
        for key in self.arguments:
            if not _NAME.fullmatch(key):
                raise SpecError(f"{key!r} is not an argument name.")
        object.__setattr__(self, "arguments", dict(sorted(self.arguments.items())))

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        parts = [str(item) for item in self.nested]
        parts += [f"{key}={_write(value)}" for key, value in self.arguments.items()]
        return f"{self.name}({','.join(parts)})" if parts else self.name


def _write(value: str | Spec) -> str:
    if isinstance(value, Spec):
        text = str(value)
        return text if text.endswith(")") else f"{text}()"
    return value if _WORD.fullmatch(value) else orjson.dumps(value).decode()


class _Reader:
    """Reads a spec string from left to right; `position` is that of the next character."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def fail(self, expected: str) -> SpecError:
        """The error for what comes at the current position."""
        found = repr(self.text[self.position : self.position + 12]) if self.position < len(self.text) else "the end"
        return self.wrong(f"expected {expected}, found {found}", self.position)

    def wrong(self, what: str, position: int) -> SpecError:
        """The error for `what` is wrong at a position."""
        return SpecError(f"spec {self.text!r}, position {position}: {what}.")

    def take(self, literal: str) -> bool:
        """Skip spaces and, if it comes next, `literal`; whether it did."""
        self.skip()
        if self.text.startswith(literal, self.position):
            self.position += len(literal)
            return True
        return False

    def skip(self) -> None:
        """Skip spaces."""
        while self.text.startswith(" ", self.position):
            self.position += 1

    def match(self, pattern: re.Pattern[str], expected: str) -> str:
        """Read what `pattern` matches at the position. Raises SpecError when it matches nothing."""
        self.skip()
        match = pattern.match(self.text, self.position)
        if match is None:
            raise self.fail(expected)
        self.position = match.end()
        return match.group()

    def spec(self, depth: int = 0) -> Spec:
        """Read a whole spec."""
        if depth > _MAX_DEPTH:
            raise self.wrong(f"nested deeper than {_MAX_DEPTH} levels", self.position)
        name = self.match(_NAME, "a name")
        return self.arguments_of(name, depth) if self.take("(") else Spec(name)

    def arguments_of(self, name: str, depth: int) -> Spec:
        """Read the arguments in parentheses after `name`."""
        nested: list[Spec] = []
        arguments: dict[str, str | Spec] = {}
        if self.take(")"):
            return Spec(name)
        while True:
            self.skip()
            start = self.position
            key = self.match(_NAME, "an argument")
            if self.take("="):
                if key in arguments:
                    raise self.wrong(f"argument {key!r} is given twice", start)
                arguments[key] = self.value(depth)
            else:
                self.position = start
                if arguments:
                    raise self.fail("nested specs before arguments by key")
                nested.append(self.spec(depth + 1))
            if self.take(")"):
                return Spec(name, tuple(nested), arguments)
            if not self.take(","):
                raise self.fail("',' or ')'")

    def value(self, depth: int) -> str | Spec:
        """Read the value of an argument."""
        self.skip()
        start = self.position
        if self.text.startswith('"', start):
            quoted = self.match(_QUOTED, "a closed quoted string")
            try:
                return str(orjson.loads(quoted))
            except orjson.JSONDecodeError:
                raise self.wrong(f"{quoted} is not a valid quoted string", start) from None
        hint = "" if self.text[start : start + 1] in {"", ",", ")"} else f" {_QUOTES}"
        word = self.match(_WORD, f"a value{hint}")
        if self.text.startswith("(", self.position):
            self.position = start
            return self.spec(depth + 1)
        self.skip()
        if self.position < len(self.text) and self.text[self.position] not in ",)":
            raise self.fail(f"',' or ')' {_QUOTES}")
        return word


def parse(text: str) -> Spec:
    """Read a spec string.

    Args:
        text: The spec string; see the grammar of this module.

    Returns:
        The spec as it is written: defaults are filled in by `schemarouter.retrieval.registry.resolve`.

    Raises:
        SpecError: With the position of what is wrong.

    Example:
        >>> spec = parse("rrf(bm25(k1=1.2), dense)")
        >>> spec.name, [str(nested) for nested in spec.nested]
        ('rrf', ['bm25(k1=1.2)', 'dense'])
        >>> parse(str(spec)) == spec
        True
    """
    reader = _Reader(text)
    spec = reader.spec()
    reader.skip()
    if reader.position != len(text):
        raise reader.fail("the end")
    return spec


@dataclass(frozen=True, slots=True)
class Option:
    """A declared argument of a retriever or agent.

    Attributes:
        kind: Type of its value.
        default: The word that is read where it is left out.
        minimum: Smallest value.
        maximum: Largest value.
        choices: The only words allowed, where there are any.
        suggestions: Known words of an argument that takes any text.
    """

    kind: type[int] | type[float] | type[str]
    default: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    suggestions: tuple[str, ...] = ()

    def read(self, owner: str, key: str, word: str) -> int | float | str:
        """Convert a word into a value. Raises SpecError, which says what is allowed."""
        try:
            value = self.kind(word)
        except ValueError:
            raise SpecError(f"{owner}: argument {key}={word!r} must be {self.kind.__name__}.") from None
        if isinstance(value, float) and not math.isfinite(value):
            raise SpecError(f"{owner}: argument {key}={word!r} must be finite.")
        if self.minimum is not None and isinstance(value, int | float) and value < self.minimum:
            raise SpecError(f"{owner}: argument {key}={word} must be at least {self.minimum:g}.")
        if self.maximum is not None and isinstance(value, int | float) and value > self.maximum:
            raise SpecError(f"{owner}: argument {key}={word} must be at most {self.maximum:g}.")
        if self.choices and word not in self.choices:
            raise SpecError(f"{owner}: {unknown(key, word, self.choices)}")
        if self.suggestions and not word.strip():
            raise SpecError(f"{owner}: argument {key} must not be empty. Known: {', '.join(self.suggestions)}.")
        return value


@dataclass(frozen=True, slots=True)
class Declaration:
    """What a registered name takes.

    Attributes:
        name: The registered name.
        summary: What it is, in one line.
        options: Its options by key.
        nested_min: Smallest number of nested specs.
        nested_max: Largest number of nested specs.
        fitted_to: Names of the surfaces that it was fitted to, so that its figures on them are too high.
    """

    name: str
    summary: str
    options: Mapping[str, Option] = field(default_factory=dict)
    nested_min: int = 0
    nested_max: int = 0
    fitted_to: tuple[str, ...] = ()

    def values(self, spec: Spec) -> dict[str, int | float | str]:
        """Return every option's value, defaults filled in. Raises SpecError for unknown options and wrong nesting."""
        for key in spec.arguments:
            if key not in self.options:
                raise SpecError(f"{self.name}: {unknown('argument', key, self.options)}")
        count = len(spec.nested)
        if not self.nested_min <= count <= self.nested_max:
            allowed = (
                str(self.nested_min)
                if self.nested_min == self.nested_max
                else f"{self.nested_min} to {self.nested_max}"
            )
            raise SpecError(f"{self.name} takes {allowed} nested specs, got {count}.")
        values = {}
        for key, option in self.options.items():
            word = spec.arguments.get(key, option.default)
            if isinstance(word, Spec):
                raise SpecError(f"{self.name}: argument {key} must be a plain value, got the spec {word}.")
            values[key] = option.read(self.name, key, word)
        return values

    def resolve(self, spec: Spec, nested: tuple[Spec, ...]) -> Spec:
        """Return the spec with every default written out, which is its identity. Raises SpecError as `values`."""
        values = self.values(spec)
        return Spec(self.name, nested, {key: str(value) for key, value in values.items()})


def registered_module(kind: str, name: str, modules: Mapping[str, str]) -> ModuleType:
    """Import the module that a name is registered with.

    Args:
        kind: What is registered, such as ``retriever``.
        name: The registered name.
        modules: The dotted name of each module, by registered name.

    Returns:
        The module; it has DECLARATION and build.

    Raises:
        SpecError: For an unknown name, and for one that is registered with anything but such a module.
    """
    if name not in modules:
        raise SpecError(unknown(kind, name, modules))
    place = modules[name]
    module = import_module(place) if isinstance(place, str) else None
    if module is None or not hasattr(module, "DECLARATION") or not hasattr(module, "build"):
        raise SpecError(
            f"{kind} {name!r} is registered as {place!r}, which is no module with DECLARATION and build; "
            "its registry maps a name to a module's dotted name."
        )
    return module
