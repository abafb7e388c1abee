"""Identifiers in a request, and how much their shape has in common with the examples that contracts register."""

from __future__ import annotations

import re
from dataclasses import dataclass

from schemarouter.retrieval.text import normalise

# A word of letters and digits, as identifiers, tags and codes are; dates and plain numbers are not.
_RUN = re.compile(r"[A-Za-z0-9#:/._+-]+")
_FIRST = re.compile(r"(?<![A-Za-z0-9_])[A-Za-z0-9]")
_SIGNS = "#:/._+-"
_MIN_LENGTH = 4
_HEAD = re.compile(r"[A-Za-z]*")
# What an equal form and an equal head add to a likeness; a head of one letter adds less.
_SAME_FORM, _SAME_HEAD, _SAME_LETTER = 0.5, 0.5, 0.3
# From this likeness on, a literal is taken to be of the example's kind.
SURE = 0.9


@dataclass(frozen=True, slots=True)
class Shape:
    """What an identifier looks like: the letters that it begins with, and its runs of letters and digits (``A-9``)."""

    head: str
    form: str


def shape(text: str) -> Shape:
    """Return the shape of an identifier.

    Example:
        >>> shape("ITM-00519377")
        Shape(head='ITM', form='A-9')
    """
    head = _HEAD.match(text)
    form = re.sub(r"\d+", "9", re.sub(r"[a-z]+", "a", re.sub(r"[A-Z]+", "A", text)))
    return Shape(head.group() if head else "", form)


def likeness(one: Shape, other: Shape) -> float:
    """Return how much two shapes have in common, from 0 to 1."""
    score = _SAME_FORM if one.form == other.form else 0.0
    if one.head and one.head == other.head:
        score += _SAME_HEAD if len(one.head) > 1 else _SAME_LETTER
    return score


def literals(text: str) -> list[str]:
    """Return the identifiers in a text, in order."""
    runs = (match.group() for match in _RUN.finditer(normalise(text)))
    return [literal for run in runs if (literal := _literal(run))]


def _literal(run: str) -> str:
    """The identifier in a run of letters, digits and signs, from its first word on; empty where there is none.

    A later word of the run begins none that an earlier one does not: it has fewer letters and digits.
    """
    first = _FIRST.search(run)
    found = run[first.start() :].rstrip(_SIGNS) if first else ""
    both = any(char.isdigit() for char in found) and any(char.isalpha() for char in found)
    return found if both and len(found) >= _MIN_LENGTH else ""


def is_literal(text: str) -> bool:
    """Whether the whole of a text is an identifier."""
    return bool(text) and _RUN.fullmatch(text) is not None and _literal(text) == text
