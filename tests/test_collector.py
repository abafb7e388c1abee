"""The collector is told to look less often for a time, and is as before afterwards, whatever ended that."""

from __future__ import annotations

import gc

import pytest

from schemarouter.collector import seldom_collected


def test_the_collector_is_as_before_afterwards() -> None:
    before = gc.get_threshold()
    seen: list[tuple[int, int]] = []

    def failing() -> None:
        with seldom_collected():
            seen.append((gc.get_threshold()[0], gc.get_freeze_count()))
            raise KeyError

    with pytest.raises(KeyError):
        failing()
    assert gc.isenabled() and seen[0][0] > before[0] and seen[0][1] > 0
    assert gc.get_threshold() == before and gc.get_freeze_count() == 0
