"""``verify`` and ``lock``: what was promised, recomputed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from preregistration import lock, protocol
from preregistration.lock import FILES, Lock
from surface.loader import Surface
from tests.cli.program import ROOT, environment, inside, outside, refused

pytestmark = pytest.mark.slow

ROOMS = ("schemarouter", "conditions", "gates", "preregistration", "surface")
LOCK = Path("preregistration") / FILES["development"]
PROTOCOL = Path("preregistration") / protocol.FILES["development"]


def test_this_checkout_is_as_it_was_promised() -> None:
    result = inside("verify")
    assert (result.code, result.err) == (0, ""), result.out
    development, training, frozen = result.out.splitlines()
    assert training.startswith("training: 180 tasks, ") and training.endswith(" fingerprints as locked")
    assert development.startswith("development: 90 tasks, ") and development.endswith(" fingerprints as locked")
    assert frozen.startswith("frozen: ")


def test_verify_json_holds_every_comparison() -> None:
    report = inside("verify", "--json").json
    assert report["sound"] is True
    assert [item["surface"] for item in report["surfaces"]] == ["development", "training", "frozen"]
    held = json.loads((ROOT / LOCK).read_bytes())["fingerprints"]
    rows = report["surfaces"][0]["comparisons"]
    assert {row["name"]: row["promised"] for row in rows} == held == {row["name"]: row["actual"] for row in rows}


def test_locking_again_writes_the_lock_that_stands_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "FOLDER", tmp_path)
    result = inside("lock", "write")
    digest = Lock.model_validate(json.loads((ROOT / LOCK).read_bytes())).digest
    assert (result.code, result.out) == (0, f"{FILES['development']} written; digest {digest}.\n")
    assert (tmp_path / FILES["development"]).read_bytes() == (ROOT / LOCK).read_bytes()


def test_the_frozen_surface_cannot_be_locked_before_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surface.loader.load_surface", lambda name: Surface(name, (), {}))
    monkeypatch.setattr("preregistration.lock.read_lock", lambda name: None)
    monkeypatch.setattr("schemarouter.files.write_whole", lambda *_: pytest.fail("written"))
    refused(inside("lock", "write", "--surface", "frozen"), 3, "frozen", "has no tasks yet")


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda held: held | {"protocol": "0" * 64}, f"  protocol: locked {'0' * 64}, here "),
        (lambda held: held | {"retriever": "bm25"}, "  retriever: locked bm25, here typed("),
        (lambda held: held | {"moon": "full"}, "  moon: locked full, here None"),
        (lambda held: {k: v for k, v in held.items() if k != "surface"}, "  surface: locked None, here "),
    ],
    ids=["altered", "spec", "more", "fewer"],
)
def test_a_promise_that_does_not_hold_is_exit_3_and_named(
    change: Callable[[dict[str, str]], dict[str, str]], line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Lock.model_validate(json.loads((ROOT / LOCK).read_bytes()))
    altered = held.model_copy(update={"fingerprints": change(dict(held.fingerprints))})
    real = lock.read_lock
    monkeypatch.setattr("preregistration.lock.read_lock", lambda name: altered if name == "development" else real(name))
    result = inside("verify")
    assert (result.code, result.err) == (3, "")
    assert sum(text.startswith(line) for text in result.out.splitlines()) == 1
    assert sum(": locked " in text for text in result.out.splitlines()) == 1


def test_a_surface_without_lock_is_not_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("preregistration.lock.read_lock", lambda name: None)
    result = inside("verify")
    assert result.code == 3 and "not locked" in result.out
    assert inside("verify", "--json").json["sound"] is False


def test_a_task_that_cannot_be_solved_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surface.audit.validate.check_surface", lambda *_, **__: {"dev-ko-01": ["has no way out"]})
    result = inside("verify")
    assert result.code == 3
    assert "  dev-ko-01: has no way out" in result.out.splitlines()


def _write(path: Path, change: Callable[[Any], object]) -> None:
    value = json.loads(path.read_bytes())
    change(value)
    path.write_text(json.dumps(value, ensure_ascii=False))


def _reword(checkout: Path) -> None:
    path = sorted((checkout / "surface" / "catalog").glob("*.json"))[0]
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('"description": "', '"description": "Now ', 1), encoding="utf-8")


def _circle(cell: dict[str, Any]) -> None:
    """Make the first corrective step of the first task need itself."""
    task = next(item for item in cell["tasks"] if any(fault.get("cured_by") for fault in item["key"]["faults"]))
    fault = next(item for item in task["key"]["faults"] if item.get("cured_by"))
    task["key"]["faults"].append({"step": fault["cured_by"][0], "error": "busy: x", "cured_by": fault["cured_by"][:1]})
    cell["tasks"] = [task]


def _misfit(provider: dict[str, Any]) -> None:
    """Give the first output that is a string or a number a list for its example."""
    provider["capabilities"][0]["outputs"][0]["example"] = [1]


ALTERATIONS: dict[str, tuple[Callable[[Path], object], str, tuple[str, ...]]] = {
    "seed": (
        lambda c: _write(c / PROTOCOL, lambda p: p["statistics"].__setitem__("seed", 1)), "out",
        ("protocol: locked", "statistics: locked", f"{PROTOCOL}#statistics.seed: locked 20260929, here 1"),
    ),
    "catalog": (_reword, "out", ("catalogs.", "surface/catalog/access.json#")),
    "query": (
        lambda c: _write(
            c / "surface/development/two_step_state_dependency/ko.json",
            lambda cell: cell["tasks"][0]["prompt"].__setitem__("query", cell["tasks"][0]["prompt"]["query"] + " "),
        ), "out", ("surface: locked", "two_step_state_dependency/ko.json#dev-ko-01.prompt: locked"),
    ),
    "loose lock": (lambda c: _write(c / LOCK, lambda held: held.__setitem__("confirmatory", True)), "out",
                   ("  confirmatory: locked True, here False",)),
    "no catalogs": (lambda c: _write(c / PROTOCOL, lambda p: p.__setitem__("catalogs", [])), "err",
                    (f"{PROTOCOL.name}: catalogs: Tuple should have at least 1 item",)),
    "circle of cures": (lambda c: _write(c / "surface/development/recoverable_execution_failure/en.json", _circle), "err",
                        ("recoverable_execution_failure/en.json", "tasks.0.key", "steps that wait for each other")),
    "example": (lambda c: _write(c / "surface/catalog/access.json", _misfit), "err",
                ("access.json", "outputs.0", "but its example is array")),
    "no lock": (lambda c: (c / LOCK).unlink(), "out", ("not locked",)),
    "torn lock": (lambda c: (c / LOCK).write_bytes(b'{"schema_'), "err", (LOCK.name, "not JSON")),
    "foreign lock": (lambda c: (c / LOCK).write_bytes(b'{"a": 1}'), "err", (LOCK.name,)),
    "torn protocol": (lambda c: (c / PROTOCOL).write_bytes(b""), "err", (PROTOCOL.name, "not JSON")),
    "no protocol": (lambda c: (c / PROTOCOL).unlink(), "err", (PROTOCOL.name, "cannot be read")),
}  # fmt: skip


@pytest.mark.parametrize("name", ALTERATIONS)
def test_a_copy_of_the_checkout_that_was_altered_is_exit_3_and_reported(name: str, tmp_path: Path) -> None:
    alter, stream, words = ALTERATIONS[name]
    for room in ROOMS:
        shutil.copytree(ROOT / room, tmp_path / room, ignore=shutil.ignore_patterns("__pycache__"))
    alter(tmp_path)
    result = outside("verify", env=environment(PYTHONPATH=str(tmp_path), PYTHONDONTWRITEBYTECODE="1"), cwd=tmp_path)
    if stream == "err":
        refused(result, 3, *words)
    else:
        assert (result.code, result.err) == (3, "")
        assert all(word in result.out for word in words), result.out
