"""A local Ray does what one process does, and continues when it loses a worker."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from conditions.running.engines.base import InProcess
from conditions.running.engines.ray import RayCluster
from gates.aggregate import read_complete_run
from schemarouter.errors import SchemaRouterError
from tests.conditions.running.engines.test_pool import WORLD, Faulty, bytes_of, fill
from tests.toys import read_records, toy_runner

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"),
]


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """What Ray leaves open is found here, where it is known of, and not in whichever test comes later."""
    yield
    gc.collect()


@pytest.fixture(autouse=True)
def _reachable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's workers find the tests where this process does."""
    root = str(Path(__file__).resolve().parents[4])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", "")))))


def test_ray_writes_what_one_process_writes(tmp_path: Path) -> None:
    alone = fill(tmp_path / "alone", InProcess(toy_runner()))
    folder = fill(tmp_path / "run", RayCluster(toy_runner, 2))
    assert bytes_of(folder) == bytes_of(alone)
    assert list(read_complete_run(folder, WORLD).aggregate().chunks()) == list(
        read_complete_run(alone, WORLD).aggregate().chunks()
    )


def test_an_actor_that_dies_is_replaced_and_its_episodes_are_run_again(tmp_path: Path) -> None:
    alone = fill(tmp_path / "alone", InProcess(toy_runner()))
    folder = fill(tmp_path / "run", RayCluster(Faulty("exit", str(tmp_path), 2), 2))
    assert sum(record.infrastructure for record in read_records(folder)) == 1
    assert read_complete_run(folder, WORLD).rows == read_complete_run(alone, WORLD).rows


def test_a_cluster_that_is_not_there_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(SchemaRouterError, match="cannot be used"):
        fill(tmp_path / "run", RayCluster(toy_runner, 2, address="127.0.0.1:1"))
