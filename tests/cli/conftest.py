"""One small run, made once, and a way to get copies of it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from surface import loader
from tests.cli.program import SMALL, copied, inside

Copies = Callable[..., Path]
PATH = os.environ["PATH"]


@pytest.fixture(scope="package", autouse=True)
def _no_checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Runs record no commit and no dirty flag: somebody may be at work in the checkout while these tests run."""
    with pytest.MonkeyPatch.context() as patch:
        without_git = tmp_path_factory.mktemp("bin")
        for shell in filter(None, map(shutil.which, ("sh", "bash"))):
            (without_git / Path(shell).name).symlink_to(shell)
        patch.setenv("PATH", str(without_git))
        patch.setenv("SCHEMAROUTER_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("COLUMNS", "200")
        yield


@pytest.fixture(autouse=True)
def _frozen_requests_anew() -> Iterator[None]:
    """What counts as a frozen request is read once a process: a test that puts other tasks there leaves none behind."""
    yield
    loader.frozen_queries.cache_clear()
    loader.asks_frozen.cache_clear()


@pytest.fixture(scope="package")
def small(tmp_path_factory: pytest.TempPathFactory, _no_checkout: None) -> Path:
    """A complete run of twenty episodes; nobody writes to it."""
    folder = tmp_path_factory.mktemp("runs") / "small"
    made = inside("run", "--out", folder, *SMALL)
    assert made.code == 0, made.err
    return folder


@pytest.fixture
def copy(small: Path, tmp_path: Path) -> Copies:
    """Copies of the small run: whole, or with fewer `lines` and a `torn` last one."""
    made: list[Path] = []

    def make(*, lines: int | None = None, torn: int = 0) -> Path:
        made.append(copied(small, tmp_path / f"copy{len(made)}", lines=lines, torn=torn))
        return made[-1]

    return make
