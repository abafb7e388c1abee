"""No result depends on hash seed, thread count, CPU kernels or an older cache: the same bytes, every time."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from conditions.storage.run_directory import AGGREGATE_FILE
from preregistration.protocol import load_protocol
from schemarouter.retrieval.registry import resolve
from tests.cli.program import ROOT, SHARD_FILE, environment

pytestmark = pytest.mark.slow

TASKS = ("--task", "dev-ko-04", "--task", "dev-ja-02", "--condition", "SR-5-STATE-AWARE", "--condition", "FULL")
# Both commands in one process, which loads everything once.
PROGRAM = """
import sys
from schemarouter.cli.app import main
out, *options = sys.argv[1:]
for command in (["run", "--out", out, *options], ["aggregate", out]):
    sys.argv = ["schemarouter", *command]
    try:
        main()
    except SystemExit as ended:
        if ended.code:
            raise
"""


def _kernels() -> tuple[str, str]:
    """Two OpenBLAS kernels that this machine can run, an old one and a newer one."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return "ARMV8", "NEOVERSEN1"
    info = Path("/proc/cpuinfo")
    return "Prescott", "Haswell" if info.exists() and " avx2 " in info.read_text() else "Nehalem"


def _result(folder: Path, **settings: str) -> tuple[bytes, bytes]:
    env = environment(SCHEMAROUTER_CACHE=str(folder / "cache"), **settings)
    command = [sys.executable, "-c", PROGRAM, str(folder / "run"), "--catalog", "100", *TASKS, "--display", "none"]
    done = subprocess.run(command, capture_output=True, env=env, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert [*(folder / "cache").rglob("*.npy")], "the cache was not used"
    return (folder / "run" / AGGREGATE_FILE).read_bytes(), (folder / "run" / SHARD_FILE).read_bytes()


def test_the_default_retriever_gives_the_same_bytes_whatever_seed_threads_and_kernel(tmp_path: Path) -> None:
    old, new = _kernels()
    results = [
        _result(tmp_path / "a", PYTHONHASHSEED="0"),
        _result(tmp_path / "b", PYTHONHASHSEED="4711", OPENBLAS_CORETYPE=old),
        _result(tmp_path / "c", PYTHONHASHSEED="1", OPENBLAS_NUM_THREADS="2", OPENBLAS_CORETYPE=new),
    ]
    assert len({aggregate for aggregate, _ in results}) == 1
    assert len({shard for _, shard in results}) == 1
    retriever = str(resolve(load_protocol("development").retriever))
    assert "model=" in retriever and retriever.encode() in results[0][0]
