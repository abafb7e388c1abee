"""The fallible agent: without errors it is the reference; one seed gives the same errors again; policy decides the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conditions.running.runner import Runner
from gates.aggregate import read_complete_run
from schemarouter.agents.registry import resolve, seeded, takes_seed
from schemarouter.records import encode
from schemarouter.retrieval.spec import SpecError
from tests.toys import CATALOGS, SPEC, SURFACE, read_records, toy_protocol, toy_run


def run(folder: Path, agent: str, **part: Any) -> set[bytes]:
    """The records of a toy run under an agent."""
    runner = Runner(toy_protocol(), SURFACE, CATALOGS, retriever=SPEC, agent=resolve(agent))
    world = toy_run(folder, runner, **part)
    read_complete_run(folder, world)  # What it did can have happened, errors and all.
    return {encode(record) for record in read_records(folder)}


def test_without_errors_it_is_the_reference(tmp_path: Path) -> None:
    assert run(tmp_path / "a", "fallible(slip=0)") == run(tmp_path / "b", "reference")


@pytest.mark.slow
def test_the_same_seed_gives_the_same_errors_and_another_one_others(tmp_path: Path) -> None:
    one, again, other = (
        run(tmp_path / name, f"fallible(slip=0.5,seed={seed})") for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    assert one == again != other
    assert one != run(tmp_path / "d", "reference")


@pytest.mark.slow
def test_each_repeat_has_a_seed_of_its_own(tmp_path: Path) -> None:
    repeated = run(tmp_path / "a", "fallible(slip=0.5,seed=7)", repeats=3)
    for number in (1, 2, 3):
        alone = run(tmp_path / f"alone{number}", f"fallible(slip=0.5,seed={6 + number})")
        assert {data.replace(b'"repeat":1,', b'"repeat":%d,' % number) for data in alone} <= repeated


def test_an_agent_that_always_errs_still_ends_every_episode(tmp_path: Path) -> None:
    assert len(run(tmp_path / "a", "fallible(slip=1)")) == 40


@pytest.mark.parametrize(
    "spec", ["fallible(slip=1.5)", "fallible(slip=-0.1)", "fallible(seed=-1)", "fallible(slip=nan)"]
)
def test_what_is_no_probability_and_no_seed_is_refused(spec: str) -> None:
    with pytest.raises(SpecError):
        resolve(spec)


def test_only_an_agent_with_a_seed_takes_one() -> None:
    assert takes_seed("fallible") and not takes_seed("reference")
    assert str(seeded(resolve("fallible(seed=4)"), 3)) == "fallible(seed=6,slip=0.1)"
    assert seeded(resolve("reference"), 3) == resolve("reference")
