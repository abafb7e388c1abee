"""Results of the benchmarks as tables and as JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from typing import Any

from rich.table import Table

from benchmarks.timing import Row

SCHEMA_VERSION = 1
_PACKAGES = ("numpy", "scipy", "rank-bm25", "bm25s", "numba")


def environment() -> dict[str, Any]:
    """The environment that times depend on besides the code."""
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "processors": os.cpu_count(),
        "threads": {name: os.environ.get(name, "") for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")},
        "packages": {name: _version(name) for name in _PACKAGES},
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def as_json(measured: Sequence[Row]) -> dict[str, Any]:
    """The rows and where they were measured."""
    return {"schema_version": SCHEMA_VERSION, "environment": environment(), "rows": [row.as_json() for row in measured]}


def tables(measured: Sequence[Row]) -> list[Table]:
    """A table for each comparison; times of one call, ratios to the first system of each size."""
    shown = []
    for title, group in groupby(
        sorted(measured, key=lambda row: _first_index(row, measured)), key=lambda row: row.table
    ):
        table = Table(title=title, title_justify="left")
        table.add_column("entries", justify="right")
        table.add_column("system", overflow="fold")
        for name in ("median ms", "best ms", "× first", "calls", "build s", "keeps MB", "peak MB"):
            table.add_column(name, justify="right")
        table.add_column("note", overflow="fold")
        for row in group:
            built = (f"{value:.2f}" if value is not None else "" for value in (row.build_s, row.kept_mb, row.peak_mb))
            times = (f"{row.median_ms:.4f}", f"{row.best_ms:.4f}", f"{row.ratio:.2f}")
            table.add_row(f"{row.entries:,}", row.system, *times, str(row.calls), *built, row.note)
        shown.append(table)
    return shown


def _first_index(row: Row, measured: Sequence[Row]) -> int:
    """The index of the first row of the same table, so that the sizes of a table come together."""
    return next(index for index, other in enumerate(measured) if other.table == row.table)
