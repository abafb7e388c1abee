"""What the README says works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.markdown import ROOT, code_blocks, run_command

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = code_blocks(ROOT / "README.md")
PYTHON = [body for language, body in BLOCKS if language == "python"]
SHELL = [
    line.partition("  #")[0].strip()
    for language, body in BLOCKS
    if not language
    for line in body.splitlines()
    if "schemarouter" in line
]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"]},
            "returns": {"type": "object", "properties": {"refund_id": {"type": "string"}}},
        },
    }
    for name, description in (
        ("orders__refund", "Refund an order."),
        ("mail__notify", "Tell the customer about a refund."),
        ("orders__cancel", "Cancel an order."),
    )
]


def test_one_screen_is_enough() -> None:
    assert len(README.splitlines()) <= 90


def test_the_condition_runs_in_a_loop_of_ones_own() -> None:
    calls = iter([("orders.refund", {"order_id": "4471"}), ("mail.notify", {"order_id": "4471"}), None])
    shown: list[tuple[str, ...]] = []

    def choose(routes: tuple[str, ...]) -> Any:
        shown.append(routes)
        return next(calls)

    names: dict[str, Any] = {"tools": TOOLS, "choose": choose, "execute": lambda call: {"refund_id": "RF-1"}}
    exec(compile(PYTHON[0], "README.md", "exec"), names)
    assert "orders.refund" in shown[0]
    assert names["condition"].state.executed_registered_route_ids == ("orders.refund", "mail.notify")
    assert names["condition"].state.stable_observed_identifiers == ("RF-1",)


@pytest.mark.slow
def test_every_command_works_as_written(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    allowed = {"schemarouter gate runs/mine": {1}, "state check": {3}}
    assert len(SHELL) >= 6
    for command in SHELL:
        done = run_command(command, tmp_path)
        expected = next((codes for part, codes in allowed.items() if part in command), {0})
        assert done.returncode in expected, (command, done.stdout[-500:], done.stderr[-500:])
        assert "Traceback" not in done.stderr
