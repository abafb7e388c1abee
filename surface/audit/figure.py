"""A figure of quality."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One figure of quality: its value in words, its bound, and whether the value is within it."""

    name: str
    value: str
    holds: bool = True
    bound: str = ""
