"""Laws of canonical JSON and fingerprints."""

from __future__ import annotations

import enum
import hashlib
import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemarouter.canonical import CanonicalError, canonical_json, fingerprint, sha256_hex
from tests.strategies import LAWS

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


def shuffled(value: Any, rng: random.Random) -> Any:
    if isinstance(value, list):
        return [shuffled(item, rng) for item in value]
    if isinstance(value, dict):
        pairs = [(key, shuffled(item, rng)) for key, item in value.items()]
        rng.shuffle(pairs)
        return dict(pairs)
    return value


@LAWS
@given(values, st.randoms(use_true_random=False))
def test_equal_values_give_equal_bytes(value: Any, rng: random.Random) -> None:
    data = canonical_json(value)
    assert canonical_json(shuffled(value, rng)) == data
    assert json.loads(data) == value
    assert canonical_json(json.loads(data)) == data


def test_golden_bytes() -> None:
    value = {"b": [1, 2.5, None, True], "ä": "é\n\u2028", "a": {"y": (), "x": "😀"}}
    assert canonical_json(value) == '{"a":{"x":"😀","y":[]},"b":[1,2.5,null,true],"ä":"é\\n\u2028"}'.encode()


def test_fingerprint_is_the_sha256_of_the_bytes() -> None:
    assert fingerprint({"a": 1}) == hashlib.sha256(b'{"a":1}').hexdigest() == sha256_hex(b'{"a":1}')


class Text(str):
    pass


class Number(int):
    pass


class Colour(enum.Enum):
    RED = "red"


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        2**63,
        -(2**63) - 1,
        "\ud800",
        {"\udc00": 1},
        {1: 1},
        {Text("a"): 1},
        Text("a"),
        Number(1),
        Colour.RED,
        b"a",
        {1, 2},
        object(),
        nested(65),
    ],
)
def test_refuses_what_json_cannot_hold_exactly(value: Any) -> None:
    for wrapped in (value, [value], {"k": value}):
        with pytest.raises(CanonicalError, match="value"):
            canonical_json(wrapped)


def test_what_holds_itself_is_refused_as_too_deep() -> None:
    wide: list[Any] = []
    wide += [wide, wide]
    with pytest.raises(CanonicalError, match="nested deeper than 64"):
        canonical_json(wide)
    turning: dict[str, Any] = {}
    turning["a"] = [turning]
    with pytest.raises(CanonicalError, match="nested deeper than 64"):
        canonical_json(turning)


@pytest.mark.parametrize("value", [nested(64), {"a": nested(63)}, [nested(63), nested(63)]])
def test_64_levels_are_written(value: Any) -> None:
    assert json.loads(canonical_json(value)) == value


def test_error_says_where() -> None:
    with pytest.raises(CanonicalError, match=r"value\.a\[1\]: nan"):
        canonical_json({"a": [1, float("nan")]})


def test_minus_zero_is_zero() -> None:
    for value in (-0.0, [-0.0], {"a": {"b": (1, -0.0)}}):
        plain = canonical_json(value)
        assert b"-0.0" not in plain and plain.count(b"0.0") == 1
    assert fingerprint({"x": -0.0}) == fingerprint({"x": 0.0}) != fingerprint({"x": 0})
