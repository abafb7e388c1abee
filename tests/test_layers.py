"""The contracts of import-linter (pyproject.toml) leave out no module, and each of them can be broken."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
TOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
PACKAGES = TOOLS["importlinter"]["root_packages"]
CONTRACTS = TOOLS["importlinter"]["contracts"]
FLOORS = [name.strip(" ()") for layer in CONTRACTS[0]["layers"] for name in layer.split(":")]


def test_every_module_stands_on_a_floor_and_is_seen() -> None:
    built = TOOLS["setuptools"]["packages"]["find"]["include"]
    assert {name.partition(".")[0] for name in built} == set(PACKAGES)
    paths = [path.relative_to(ROOT).with_suffix("") for name in PACKAGES for path in (ROOT / name).rglob("*.py")]
    modules = {".".join(path.parts).removesuffix(".__init__") for path in paths}
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    assert modules == graph.modules
    homeless = [name for name in modules if not any(f"{name}.".startswith(f"{floor}.") for floor in FLOORS)]
    # It holds packages of many floors, and whatever it imported they would all import.
    assert homeless == ["schemarouter"] and not graph.find_modules_directly_imported_by("schemarouter")


def lint(folder: Path, sources: dict[str, str]) -> tuple[int, str]:
    """Exit code and report of import-linter over made-up packages with a module for every floor."""
    packages = [
        f"conditions.{name}" for name in ("base", "budget", "registry", "oracle", "static", "running", "storage")
    ]
    for name in {*(floor for floor in FLOORS if floor not in PACKAGES), *packages, "preregistration.protocol"}:
        path = folder.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(sources.get(name, ""))
    for name in PACKAGES:
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "__init__.py").touch()
    (folder / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as lint; lint()", "--no-cache"]
    env = {**os.environ, "PYTHONPATH": str(folder)}
    ended = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=env, check=False)
    return ended.returncode, ended.stdout


def test_each_contract_can_be_broken_and_every_way_of_importing_is_seen(tmp_path: Path) -> None:
    right = {
        "conditions.registry": "import conditions.oracle\nfrom conditions.static import Static",
        "conditions.oracle": "import surface",
    }
    wrong = {
        "conditions.static": "def late():\n    from surface import key",
        "conditions.base": "from . import running",
        "schemarouter.retrieval": "from preregistration.protocol import Protocol",
        "schemarouter.policy": "if TYPE_CHECKING:\n    from .retrieval import base",
        "schemarouter.errors": "import schemarouter.catalog as tools",
    }
    code, report = lint(tmp_path / "right", right)
    assert (code, report.count(" KEPT")) == (0, len(CONTRACTS)), report
    code, report = lint(tmp_path / "wrong", right | wrong)
    assert (code, report.count(" BROKEN")) == (1, len(CONTRACTS)), report
    for found in (
        "conditions.static -> surface (l.2)",
        "conditions.base -> conditions.running (l.1)",
        "schemarouter.retrieval -> preregistration.protocol (l.1)",
        "schemarouter.policy -> schemarouter.retrieval (l.2)",
        "schemarouter.errors -> schemarouter.catalog (l.1)",
    ):
        assert found in report
