"""Reading JSON files into models: everything that is wrong with a file is told at once, with its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ValidationError

from schemarouter.errors import SchemaRouterError


def explain(error: ValidationError) -> list[str]:
    """One line a mistake: where it is, what came, what is allowed."""
    lines = []
    for item in error.errors(include_url=False):
        where = ".".join(str(part) for part in item["loc"]) or "file"
        lines.append(f"{where}: {item['msg']} (got {str(item.get('input'))[:80]!r})")
    return lines


_Model = TypeVar("_Model", bound=BaseModel)


def read_model(
    path: Path, model: type[_Model], failure: type[SchemaRouterError], *, place: str = "", between: str = "; "
) -> _Model:
    """Read a JSON file into a model. Raises `failure` with the place and, `between` them, everything wrong with the file."""
    where = place or path.name
    try:
        return model.model_validate(read_json(path, failure, where))
    except ValidationError as error:
        raise failure(f"{where}: " + between.join(explain(error))) from None


def read_json(path: Path, failure: type[SchemaRouterError], where: str) -> Any:
    """Read a JSON file. Raises `failure`, saying `where`, for one that cannot be read or is no JSON."""
    try:
        return orjson.loads(path.read_bytes())
    except OSError as error:
        raise failure(f"{where}: cannot be read ({error.strerror}).") from None
    except orjson.JSONDecodeError as error:
        raise failure(f"{where}: not JSON ({error}).") from None
