"""Keeps the confirmatory result: the first run of the locked protocol; every later one is a replication of it."""

from __future__ import annotations

from pathlib import Path

from conditions.storage.run_directory import AGGREGATE_FILE, RUN_FILE, VERDICT_FILE
from gates.aggregate import Aggregate, CompleteRun
from gates.verdict import Verdict
from schemarouter.errors import InvalidRunError
from schemarouter.files import parse_document, read_json, write_whole


def keep_or_compare(results: Path, run: CompleteRun, verdict: Verdict) -> str:
    """Keep header, aggregate and verdict of a confirmatory run, or compare a replication with them; says what was done."""
    path = results / AGGREGATE_FILE
    if not path.exists():
        write_whole(results / RUN_FILE, run.header.to_bytes())
        write_whole(results / VERDICT_FILE, verdict.to_bytes())
        # Last, since its presence says that the result is there.
        write_whole(path, run.aggregate().chunks())
        return f"the confirmatory result: kept in {results.name}/ of the preregistration's results; commit it."
    first = parse_document(read_json(path, InvalidRunError, str(path)), Aggregate, str(path), "aggregate").rows
    by_unit = dict(zip(first.units, first, strict=True))
    same = sum(by_unit.get(unit) == row for unit, row in zip(run.rows.units, run.rows, strict=True))
    return f"a replication: {same} of {len(run.rows)} episodes measure as in the confirmatory result ({len(first)})."
