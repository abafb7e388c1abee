"""Faults that are known and open: their tests stand, and may fail until the fault is mended."""

from __future__ import annotations

from pathlib import Path

import pytest

_KNOWN = Path(__file__).with_name("known_faults.txt")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of known faults; some are found by random search, so passing is no error."""
    known = {line.strip() for line in _KNOWN.read_text(encoding="utf-8").splitlines() if line.strip()}
    for item in items:
        if item.nodeid.encode("unicode_escape").decode() in known:
            item.add_marker(pytest.mark.xfail(strict=False, reason="known fault, see tests/known_faults.txt"))
