"""Spec strings: the typed names by which retrievers and agents are asked for, stored and hashed.

Grammar::

    spec     = name [ "(" argument { "," argument } ")" ]
    argument = spec                     a nested spec, by position
             | key "=" value            a value is a word, a quoted string, or a nested spec with parentheses

A word holds ``[A-Za-z0-9._/:@+-]``; any other string, a path with a space for example, stands in double quotes, with
JSON's escapes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import orjson

from schemarouter.errors import UsageError, unknown

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_WORD = re.compile(r"[A-Za-z0-9._/:@+-]+")
_QUOTED = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_QUOTES = "(a value with other characters than letters, digits and ._/:@+- stands in double quotes)"
_MAX_DEPTH = 16


class SpecError(UsageError):
    """A spec string that does not parse, or that asks for something unknown."""


@dataclass(frozen=True, slots=True)
class Spec:
    """A name with nested specs by position and arguments by key (kept sorted)."""

    name: str
    nested: tuple[Spec, ...] = ()
    arguments: Mapping[str, str | Spec] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise SpecError(f"{self.name!r} is no name; names look like bm25 or use-m3.")
        for key in self.arguments:
            if not _NAME.fullmatch(key):
                raise SpecError(f"{key!r} is no argument name.")
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
    """A position in a spec string."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def fail(self, expected: str) -> SpecError:
        """The error for what stands at the current position."""
        found = repr(self.text[self.at : self.at + 12]) if self.at < len(self.text) else "the end"
        return self.wrong(f"expected {expected}, found {found}", self.at)

    def wrong(self, what: str, at: int) -> SpecError:
        """The error for `what` is wrong at a position."""
        return SpecError(f"spec {self.text!r}, position {at}: {what}.")

    def take(self, literal: str) -> bool:
        """Step over white space and, if it comes next, over `literal`."""
        self.skip()
        if self.text.startswith(literal, self.at):
            self.at += len(literal)
            return True
        return False

    def skip(self) -> None:
        """Step over spaces."""
        while self.text.startswith(" ", self.at):
            self.at += 1

    def match(self, pattern: re.Pattern[str], expected: str) -> str:
        """Take what `pattern` matches here. Raises SpecError when it does not."""
        self.skip()
        found = pattern.match(self.text, self.at)
        if found is None:
            raise self.fail(expected)
        self.at = found.end()
        return found.group()

    def spec(self, depth: int = 0) -> Spec:
        """Take a whole spec."""
        if depth > _MAX_DEPTH:
            raise self.wrong(f"nested deeper than {_MAX_DEPTH} levels", self.at)
        name = self.match(_NAME, "a name")
        return self.arguments_of(name, depth) if self.take("(") else Spec(name)

    def arguments_of(self, name: str, depth: int) -> Spec:
        """Take what stands between the parentheses after `name`."""
        nested: list[Spec] = []
        arguments: dict[str, str | Spec] = {}
        if self.take(")"):
            return Spec(name)
        while True:
            self.skip()
            start = self.at
            key = self.match(_NAME, "an argument")
            if self.take("="):
                if key in arguments:
                    raise self.wrong(f"argument {key!r} is given twice", start)
                arguments[key] = self.value(depth)
            else:
                self.at = start
                if arguments:
                    raise self.fail("nested specs before arguments by key")
                nested.append(self.spec(depth + 1))
            if self.take(")"):
                return Spec(name, tuple(nested), arguments)
            if not self.take(","):
                raise self.fail("',' or ')'")

    def value(self, depth: int) -> str | Spec:
        """Take the value of an argument."""
        self.skip()
        start = self.at
        if self.text.startswith('"', start):
            quoted = self.match(_QUOTED, "a closed quoted string")
            try:
                return str(orjson.loads(quoted))
            except orjson.JSONDecodeError:
                raise self.wrong(f"{quoted} is no valid quoted string", start) from None
        hint = "" if self.text[start : start + 1] in {"", ",", ")"} else f" {_QUOTES}"
        word = self.match(_WORD, f"a value{hint}")
        if self.text.startswith("(", self.at):
            self.at = start
            return self.spec(depth + 1)
        self.skip()
        if self.at < len(self.text) and self.text[self.at] not in ",)":
            raise self.fail(f"',' or ')' {_QUOTES}")
        return word


def parse(text: str) -> Spec:
    """Read a spec string. Raises SpecError with the position of what is wrong."""
    reader = _Reader(text)
    spec = reader.spec()
    reader.skip()
    if reader.at != len(text):
        raise reader.fail("the end")
    return spec


@dataclass(frozen=True, slots=True)
class Option:
    """A declared argument: how its word is read, and the default that stands when it is left out.

    `choices` are the only words it takes; `suggestions` are known ones of an argument that takes any text.
    """

    kind: type[int] | type[float] | type[str]
    default: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    suggestions: tuple[str, ...] = ()

    def read(self, owner: str, key: str, word: str) -> int | float | str:
        """Turn a word into a value. Raises SpecError saying what is allowed."""
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
    """What a registered name takes: options by key, and how many nested specs."""

    name: str
    summary: str
    options: Mapping[str, Option] = field(default_factory=dict)
    nested_min: int = 0
    nested_max: int = 0

    def values(self, spec: Spec) -> dict[str, int | float | str]:
        """Every option's value, defaults filled in. Raises SpecError for unknown options and wrong nesting."""
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
        filled = {}
        for key, option in self.options.items():
            word = spec.arguments.get(key, option.default)
            if isinstance(word, Spec):
                raise SpecError(f"{self.name}: argument {key} must be a plain value, got the spec {word}.")
            filled[key] = option.read(self.name, key, word)
        return filled

    def resolve(self, spec: Spec, nested: tuple[Spec, ...]) -> Spec:
        """The spec with every default written out: its identity."""
        values = self.values(spec)
        return Spec(self.name, nested, {key: str(value) for key, value in values.items()})
