"""Canonical JSON and SHA-256: equal values give equal bytes on every machine."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import orjson

from schemarouter.errors import SchemaRouterError

_INT_MIN = -(2**63)
_INT_MAX = 2**63 - 1
_MAX_DEPTH = 64
_CONTAINERS = frozenset((dict, list, tuple))


class CanonicalError(SchemaRouterError):
    """A value that has no canonical JSON form."""


def _reject(value: object, where: str, depth: int) -> None:
    """Raise unless `value` consists of exact JSON types that orjson writes without loss."""
    if depth > _MAX_DEPTH:
        raise CanonicalError(f"{where}: nested deeper than {_MAX_DEPTH} levels.")
    kind = type(value)
    if kind is list or kind is tuple:
        for index, item in enumerate(value):  # type: ignore[arg-type,var-annotated]
            _reject(item, f"{where}[{index}]", depth + 1)
    elif kind is dict:
        for key, item in value.items():  # type: ignore[attr-defined]
            if type(key) is not str:
                raise CanonicalError(f"{where}: key {key!r} is a {type(key).__name__}; only plain strings are keys.")
            _reject_surrogates(key, f"{where} key")
            _reject(item, f"{where}.{key}", depth + 1)
    else:
        _reject_scalar(value, where)


def _reject_scalar(value: Any, where: str) -> None:
    kind = type(value)
    if kind is str:
        _reject_surrogates(value, where)
    elif kind is int:
        if not _INT_MIN <= value <= _INT_MAX:
            raise CanonicalError(f"{where}: an integer that does not fit in 64 bits (signed).")
    elif kind is float:
        if not math.isfinite(value):
            raise CanonicalError(f"{where}: {value} is not a JSON number; only finite numbers are.")
    elif value is not None and kind is not bool:
        raise CanonicalError(f"{where}: {kind.__name__} is not a JSON type; use plain values.")


def _reject_surrogates(text: Any, where: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise CanonicalError(f"{where}: holds a lone surrogate at position {error.start}, no Unicode text.") from None


def _is_plain(value: Any, depth: int) -> bool:
    """Whether `_reject` would accept a container, lone surrogates aside: the same walk, without tracking the location."""
    if type(value) is dict:
        for key in value:
            if type(key) is not str:
                return False
        items = value.values()
    else:
        items = value
    if depth >= _MAX_DEPTH and items:
        return False
    for item in items:
        kind = type(item)
        if kind is str or item is None or kind is bool:
            continue
        if kind is int:
            fits = _INT_MIN <= item <= _INT_MAX
        elif kind is float:
            fits = math.isfinite(item) and not _is_minus_zero(item)
        else:
            fits = kind in _CONTAINERS and _is_plain(item, depth + 1)
        if not fits:
            return False
    return True


def canonical_json(value: Any) -> bytes:
    """Write `value` as UTF-8 JSON: keys sorted, no insignificant white space, non-ASCII unescaped, -0.0 as 0.0.

    Args:
        value: Plain JSON values; tuples are written as lists.

    Returns:
        The bytes, equal for equal values.

    Raises:
        CanonicalError: For whatever JSON cannot hold exactly: subclasses of the JSON types, NaN, infinities, integers
            outside 64 bits, lone surrogates, keys that are no plain strings, more than 64 levels.

    Example:
        >>> canonical_json({"b": 1, "a": [True, None]})
        b'{"a":[true,null],"b":1}'
    """
    if type(value) in _CONTAINERS and _is_plain(value, 0):
        try:
            return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        except TypeError:
            pass  # A lone surrogate: the slower walk names its location.
    _reject(value, "value", 0)
    return orjson.dumps(_without_minus_zero(value), option=orjson.OPT_SORT_KEYS)


def _is_minus_zero(value: float) -> bool:
    return value == 0.0 and math.copysign(1.0, value) < 0


def _without_minus_zero(value: Any) -> Any:
    """The value with 0.0 for -0.0: they are equal, and so are their bytes."""
    if isinstance(value, dict):
        return {key: _without_minus_zero(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_minus_zero(item) for item in value]
    return 0.0 if type(value) is float and _is_minus_zero(value) else value


def sha256_hex(data: bytes) -> str:
    """Return the SHA-256 of `data` as 64 lower-case hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def fingerprint(value: Any) -> str:
    """Return the SHA-256 of the canonical JSON of `value`."""
    return sha256_hex(canonical_json(value))
