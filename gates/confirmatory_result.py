"""Where the confirmatory result is kept: the first run of the locked protocol; every later one is a replication of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from conditions.storage.run_directory import AGGREGATE_FILE, RUN_FILE, VERDICT_FILE, pretty_json, read_json, write_whole
from gates.aggregate import Aggregate
from gates.gate import Verdict


def keep_or_compare(results: Path, result: Aggregate, verdict: Verdict) -> str:
    """Keep header, aggregate and verdict of a confirmatory run, or hold a replication against them; returns what was done."""
    path = results / AGGREGATE_FILE
    told = result.as_json()
    if not path.exists():
        write_whole(results / RUN_FILE, pretty_json(result.run))
        write_whole(results / VERDICT_FILE, pretty_json(verdict.as_json()))
        # Last, since its presence says that the result is there.
        write_whole(path, result.chunks())
        return f"the confirmatory result: kept in {results.name}/ of the preregistration's results; commit it."
    held = read_json(path, "results folder")
    rows = _by_episode(held["rows"])
    same = sum(rows.get(name) == row for name, row in _by_episode(told["rows"]).items())
    return f"a replication: {same} of {len(told['rows'])} episodes measure as in the confirmatory result ({len(rows)})."


def _by_episode(rows: list[dict[str, Any]]) -> dict[tuple[str, int, str, int], dict[str, Any]]:
    return {(row["task"], row["catalog"], row["condition"], row["repeat"]): row for row in rows}
