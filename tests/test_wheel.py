"""The built wheel, installed into an environment of its own and run outside the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

import pytest

from conditions.running.provenance import CODE, code_fingerprint
from schemarouter import __version__
from tests.cli.program import ROOT

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Installed:
    """An environment that holds the wheel, and a folder that is no checkout."""

    bin: Path
    folder: Path

    def run(self, program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        cache = {"SCHEMAROUTER_CACHE": str(self.folder / "cache"), "OMP_NUM_THREADS": "1"}
        return subprocess.run(
            [self.bin / program, *map(str, arguments)],
            cwd=self.folder,
            env={**environment, **cache},
            capture_output=True,
            text=True,
            check=False,
        )


def _python(module: str, *arguments: object) -> None:
    subprocess.run([sys.executable, "-m", module, *map(str, arguments)], check=True, capture_output=True)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Source archive and wheel built from what the checkout holds, the wheel beside the dependencies that are here."""
    folder = tmp_path_factory.mktemp("wheel")
    source, target = folder / "source", folder / "venv"
    for package in CODE:
        shutil.copytree(ROOT / package, source / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    _python("build", "--no-isolation", "--outdir", folder / "dist", source)
    venv.create(target, with_pip=False)
    python = target / "bin" / "python"
    (wheel,) = (folder / "dist").glob("*.whl")
    _python("pip", "--python", python, "install", "--no-deps", "--no-index", wheel)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(target)}))
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    work = folder / "elsewhere"
    work.mkdir()
    return Installed(target / "bin", work)


def test_the_wheel_holds_the_code_and_data_of_the_checkout_to_the_byte(installed: Installed) -> None:
    result = installed.run(
        "python", "-c", "from conditions.running.provenance import *; print(ROOT, code_fingerprint(ROOT))"
    )
    assert result.returncode == 0, result.stderr
    root, fingerprint = result.stdout.split()
    assert Path(root).is_relative_to(installed.bin.parent)
    assert fingerprint == code_fingerprint(ROOT)
    assert all((Path(root) / package / "py.typed").is_file() for package in CODE)


def test_the_installed_program_verifies_runs_judges_and_retrieves(installed: Installed) -> None:
    commands: dict[tuple[str, ...], tuple[int, str]] = {
        ("--version",): (0, f"schemarouter-research {__version__}\n"),
        ("verify",): (0, "fingerprints as locked"),
        ("run", "--limit", "20", "--out", "mine"): (0, ""),
        ("gate", "mine"): (0, "Verdict: PASS — EXPLORATORY"),
        ("retrieve", "Wo steht der Lkw mit dem Kennzeichen M-KL 4471?"): (0, "fleet.locate_vehicle"),
    }
    for command, (code, words) in commands.items():
        result = installed.run("schemarouter", *command)
        assert result.returncode == code, (command, result.stderr)
        assert words in result.stdout
