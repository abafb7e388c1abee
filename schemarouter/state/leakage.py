"""What a state refuses regardless of its values: forbidden names, ambiguous JSON, unvalidated construction and export."""

from __future__ import annotations

import dataclasses
import itertools
import json
import unicodedata
from collections import deque
from collections.abc import Callable, ItemsView, Iterable, KeysView, Mapping, ValuesView
from functools import lru_cache
from typing import Any, Final, NoReturn, Self

from pydantic import BaseModel, model_serializer

from schemarouter.errors import SchemaRouterError

FORBIDDEN: Final[Mapping[str, str]] = {
    "future_required_route_id": "it says which route the plan needs later, which no agent has observed",
    "gold_next_route_id": "it is the answer that retrieval is measured against",
    "oracle_task_graph": "it is the plan of the task, which only the ORACLE condition may see",
    "hidden_expected_answer": "it belongs to the answer key, which only the environment and the measures may see",
    "hidden_reference_fact": "it is a fact of the answer key that nothing has returned yet",
    "condition_name": "retrieval must not know which condition it serves",
    "schemarouter_rank_score": "a retriever must not be fed its own scores",
    "schemarouter_rank_position": "a retriever must not be fed its own ranking",
}

# Unicode classes these two as letters, yet nothing is displayed for them.
_INVISIBLE_LETTERS: Final = frozenset("\u115f\u1160")
_CONTAINERS: Final = (list, tuple, set, frozenset, deque, KeysView, ValuesView, ItemsView)


class StateError(SchemaRouterError):
    """A state, query, turn or rendering that the state contract refuses."""


class ForbiddenFieldError(SchemaRouterError):
    """A name that must not reach the state: `field` as it was spelled, and the `reason` why."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(field, reason)
        self.field = field
        self.reason = reason

    def __str__(self) -> str:
        return f"field {self.field!r} is forbidden in the execution state: {self.reason}. Leave it out."


def squash(text: str) -> str:
    """Reduce a name to its letters and digits, free of case, separators, marks and compatibility forms."""
    # Upper case first: some letters (dotless i) meet their ASCII partner only there.
    folded = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).upper().casefold())
    return "".join(sign for sign in folded if sign.isalnum() and sign not in _INVISIBLE_LETTERS)


def _spellings(name: str) -> Iterable[str]:
    words = name.replace("schemarouter", "schema_router").split("_")
    for chosen in itertools.product(*((word, f"{word}s") for word in words)):
        yield "".join(chosen)


_BY_SPELLING: Final = {spelling: name for name in FORBIDDEN for spelling in _spellings(name)}
_MAX_SPELLING: Final = max(map(len, _BY_SPELLING))


def forbidden_name(text: str) -> str | None:
    """Return the forbidden name that `text` spells, or None."""
    if text.isascii() and len(text) < 2 * _MAX_SPELLING:
        return _forbidden_short(text)
    return _BY_SPELLING.get(squash(text))


@lru_cache(maxsize=4096)
def _forbidden_short(text: str) -> str | None:
    return _BY_SPELLING.get(squash(text))


def atom_key(text: str) -> str | None:
    """Return the key of a ``key=value`` string (with any compatibility form of the equals sign), or None for another string."""
    if not text.isascii():
        text = unicodedata.normalize("NFKD", text)
    key, equals, _ = text.partition("=")
    return key if equals else None


def refuse_name(text: str) -> None:
    """Raise ForbiddenFieldError when `text` spells a forbidden name."""
    name = forbidden_name(text)
    if name is not None:
        raise ForbiddenFieldError(text, f"{name}: {FORBIDDEN[name]}")


def refuse_atom(text: str) -> None:
    """Raise ForbiddenFieldError when `text` is ``key=value`` and its key spells a forbidden name."""
    key = atom_key(text)
    if key is not None:
        refuse_name(key)


def atom_is_forbidden(text: str) -> bool:
    """Whether `text` is ``key=value`` and its key spells a forbidden name."""
    key = atom_key(text)
    return key is not None and forbidden_name(key) is not None


def _plain(text: str) -> str:
    # A subclass may return different text each time; its stored text stays the same.
    return str.__str__(text)


def _children(value: Any) -> Iterable[Any]:
    """Check the names that `value` itself holds; return the values inside it."""
    if isinstance(value, Mapping):
        pairs = list(dict.items(value) if isinstance(value, dict) else value.items())
        for key, _ in pairs:
            if isinstance(key, str):
                refuse_name(_plain(key))
        return [item for _, item in pairs] + [key for key, _ in pairs if not isinstance(key, str)]
    if isinstance(value, _CONTAINERS):
        items = list(value)
        for item in items:
            if isinstance(item, str):
                refuse_atom(_plain(item))
        return items
    if isinstance(value, BaseModel):
        return [dict(vars(value)), value.__pydantic_extra__]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [{field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}]
    return ()


def refuse_forbidden(value: Any) -> None:
    """Raise ForbiddenFieldError when a forbidden name is a key, or the key of an atom in a list, anywhere inside."""
    seen: dict[int, Any] = {}
    waiting = [value]
    while waiting:
        current = waiting.pop()
        if isinstance(current, str) or id(current) in seen:
            continue
        children = _children(current)
        if children:
            seen[id(current)] = current
            waiting.extend(children)


def shorten(value: object) -> str:
    """Return the repr of a value, cut to fit an error message."""
    try:
        text = repr(value)
    except Exception:  # an integer of thousands of digits, a list inside itself, a broken __repr__
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 60 else text[:57] + "..."


def _decoded(data: object) -> str:
    if type(data) is str:
        return data
    if type(data) is not bytes and type(data) is not bytearray:
        raise StateError(f"not an execution state: must be JSON as bytes, got {type(data).__name__}.")
    try:
        return bytes(data).decode("utf-8")
    except UnicodeDecodeError as error:
        raise StateError(f"not an execution state: not UTF-8 (byte {error.start}).") from None


def _constant(word: str) -> NoReturn:
    raise StateError(f"not an execution state: {word} is not JSON.")


def read_object(data: object) -> dict[str, Any]:
    """Read one JSON object from bytes or text.

    Raises:
        ForbiddenFieldError: For a forbidden name anywhere in it.
        StateError: For what is not JSON in UTF-8, for NaN and infinities, and for keys given twice, of which most readers
            silently keep the last.
    """
    twice: set[str] = set()
    dropped: list[Any] = []

    def collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        whole: dict[str, Any] = {}
        for key, value in pairs:
            if key in whole:
                twice.add(key)
                dropped.append({key: whole[key]})
            whole[key] = value
        return whole

    try:
        loaded = json.loads(_decoded(data), object_pairs_hook=collect, parse_constant=_constant)
    except RecursionError:
        raise StateError("not an execution state: nested too deeply; a state is one flat object.") from None
    except ValueError as error:
        raise StateError(f"not an execution state: not JSON ({error}).") from None
    refuse_forbidden([loaded, dropped])
    if twice:
        raise StateError(f"not an execution state: keys given twice: {', '.join(map(shorten, sorted(twice)))}.")
    if type(loaded) is not dict:
        raise StateError(f"not an execution state: must be a JSON object, got {type(loaded).__name__}.")
    return loaded


class SealedModel(BaseModel):
    """A frozen model that cannot be built, changed or exported without validation; a subclass defines `_checked_copy`."""

    def _checked_copy(self) -> Self:
        """A validated copy. Raises StateError if the fields were tampered with."""
        raise NotImplementedError

    @model_serializer(mode="wrap")
    def _check_exit(self, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        return handler(self._checked_copy())

    def model_dump(self, **options: Any) -> dict[str, Any]:
        """As in pydantic, from a validated copy. Raises StateError if the model was tampered with."""
        return BaseModel.model_dump(self._checked_copy(), **options)

    def model_dump_json(self, **options: Any) -> str:
        """As in pydantic, from a validated copy. Raises StateError if the model was tampered with."""
        return BaseModel.model_dump_json(self._checked_copy(), **options)

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **_options: Any) -> Self:
        """As model_validate, but keys given twice are refused too."""
        return cls.model_validate(read_object(json_data))

    @classmethod
    def model_validate_strings(cls, obj: Any, **_options: Any) -> Self:
        """As model_validate: strings are not read any less strictly."""
        return cls.model_validate(obj)

    @classmethod
    def model_construct(cls, _fields_set: set[str] | None = None, **values: Any) -> Self:
        """As the constructor: there is no unvalidated construction."""
        return cls(**values)

    def copy(self, **_options: Any) -> Self:
        """Raise StateError: the copy of pydantic version 1 does not validate."""
        raise StateError("a state is copied with model_copy(update=...), which validates.")

    def __copy__(self) -> Self:
        return self._checked_copy()

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return self._checked_copy()

    def __setstate__(self, state: Any) -> None:
        raise StateError("a state is restored from its canonical JSON, not from raw attributes.")

    def __setattr__(self, name: str, value: Any) -> None:
        raise StateError(f"a state never changes: {name!r} cannot be set. Use observe or model_copy(update=...).")

    def __delattr__(self, name: str) -> None:
        raise StateError(f"a state never changes: {name!r} cannot be deleted.")
