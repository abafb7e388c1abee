"""The plain bootstrap that the gate is timed beside gives the gate's interval, so that both do the same work."""

from __future__ import annotations

import pytest

from benchmarks.gate import gate_rows, plain_interval, synthetic_run
from benchmarks.timing import Effort
from gates.gate import judge
from preregistration.protocol import load_protocol

pytestmark = pytest.mark.slow


def test_the_plain_bootstrap_agrees_with_the_gate_on_the_synthetic_run() -> None:
    protocol = load_protocol("frozen")
    rules = protocol.statistics.model_copy(update={"iterations": 1_000})
    protocol = protocol.model_copy(update={"statistics": rules})
    run = synthetic_run(protocol)
    assert len(run.rows) == 2_700 and len(set(run.cells.values())) == 30
    interval = judge(run, protocol).criteria[0].intervals["percentile"]
    # Two random streams: quantiles of 1,000 draws differ by a fraction of the width of the interval.
    assert plain_interval(run, protocol, 1) == pytest.approx((interval.low, interval.high), abs=0.02)


def test_both_systems_are_measured_over_2700_episodes() -> None:
    first, other = gate_rows(Effort(rounds=1, seconds=0.0), iterations=20)
    assert (first.entries, other.entries) == (2_700, 2_700) and first.ratio == 1.0
    assert first.system.startswith("judge") and other.system.startswith("plain Python") and "20 draws" in first.note
