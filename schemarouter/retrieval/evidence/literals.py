"""Identifiers in a request, and how much their shape has in common with the examples that contracts register."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

# A word of letters and digits, as identifiers, tags and codes are; dates and plain numbers are not.
_LITERAL = re.compile(
    r"(?<![A-Za-z0-9_])(?=[A-Za-z0-9#:/._+-]*\d)(?=[A-Za-z0-9#:/._+-]*[A-Za-z])[A-Za-z0-9][A-Za-z0-9:/._+#-]{2,}[A-Za-z0-9]"
)
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
    return [match.group() for match in _LITERAL.finditer(unicodedata.normalize("NFKC", text))]


def is_literal(text: str) -> bool:
    """Whether the whole of a text is an identifier."""
    return _LITERAL.fullmatch(text) is not None
