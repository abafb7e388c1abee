"""The wall: no SR exposure depends on an answer key, and no ranking on the files of the surface."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemarouter.agents.base import Action
from schemarouter.canonical import canonical_json
from schemarouter.records import Exposed
from schemarouter.retrieval.base import entries_of
from schemarouter.retrieval.random import Random
from schemarouter.retrieval.registry import build_retriever
from schemarouter.state import Call, Observation
from surface import loader
from surface.environment import Environment, plausible_outputs
from surface.task import Task
from tests.strategies import LAWS
from tests.toys import CATALOG, CHAIN, CURED, DESTROYS, RETRIED, SR, Broken, Scripted, call, make_episode

RANDOM = Random(entries_of(CATALOG), seed=8)


class Staged(Environment):
    """Holds a task's key, and answers from a script alone."""

    def __init__(self, task: Task, answers: Sequence[Observation | str]) -> None:
        super().__init__(task.key, CATALOG, seed_text=task.prompt.id)
        self._answers = iter(answers)

    def execute(self, call: Call) -> Observation:
        answer = next(self._answers)
        if isinstance(answer, Observation):
            return answer
        return Observation("ran", plausible_outputs(CATALOG[call.route_id], answer, call.arguments))


FAILED = Observation("error", {"status": "error", "error": "busy: later"})
# Nothing destructive, and a policy that lets all through: what is observed is the same whatever the key says.
ROUTES = [item.route_id for item in CATALOG.capabilities if item.effect != "destructive"]
STEPS = st.just("ask") | st.tuples(st.sampled_from(ROUTES), st.sampled_from(["a", "b"]) | st.just(FAILED))
KEYS = (CHAIN, CURED, RETRIED, DESTROYS)
ARGUMENTS = {"order_name": "x", "order_id": "o", "shipment_id": "s", "load": 1.5, "load_unit": "kg"}


def exposures(condition: str, key: Task, steps: Sequence[Any]) -> bytes:
    """The bytes of everything a condition showed, one prompt and one script for all keys."""
    task = Task(prompt=CHAIN.prompt, key=key.key)
    answers = [step[1] for step in steps if step != "ask"]
    actions = [Action("ask") if step == "ask" else _call(step[0]) for step in steps]
    episode = make_episode(
        condition, task, agent=Scripted(actions), retriever=RANDOM, environment=Staged(task, answers), policy=Broken()
    )
    shown = [event for event in episode.run().events if isinstance(event, Exposed)]
    return canonical_json([[e.turn, e.cause, list(e.routes), list(e.ranking), e.can_ask, e.can_turn] for e in shown])


def _call(route: str) -> Action:
    needed = CATALOG[route].required_parameters
    return call(route, **{item.name: ARGUMENTS[item.name] for item in needed})


@LAWS
@given(st.sampled_from(SR), st.lists(STEPS, max_size=12))
def test_swapping_the_answer_keys_leaves_every_sr_exposure_the_same_to_the_byte(
    condition: str, steps: list[Any]
) -> None:
    shown = {exposures(condition, key, steps) for key in KEYS}
    assert len(shown) == 1


def test_the_law_can_fail_oracle_breaks_it() -> None:
    assert len({exposures("ORACLE", key, []) for key in KEYS}) == 4


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def poison(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes every file of the surface unreadable, from the call on."""

    def guarded(real: Callable[..., Any]) -> Callable[..., Any]:
        def opening(path: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(path, str | Path) and Path(path).resolve().is_relative_to(loader.ROOT):
                raise PermissionError(f"poisoned: {path}")
            return real(path, *args, **kwargs)

        return opening

    def apply() -> None:
        # What this process has read before would still be at hand.
        for read in (
            loader.load_surface,
            loader.load_full_catalog,
            loader._tier,
            loader.frozen_queries,
            loader.asks_frozen,
        ):
            read.cache_clear()
        monkeypatch.setattr("builtins.open", guarded(open))
        monkeypatch.setattr(io, "open", guarded(io.open))
        monkeypatch.setattr("os.open", guarded(__import__("os").open))
        for name in ("open", "read_bytes", "read_text"):
            monkeypatch.setattr(Path, name, guarded(getattr(Path, name)))

    return apply


QUERIES = ("Wipe the disk ci-scratch-07", "펌프 P-3118 압력을 낮춰 줘", "荷重を教えて", "")


@pytest.mark.parametrize("spec", ["bm25", "random", "rrf(bm25,random)"])
def test_a_retriever_ranks_as_before_when_the_surface_becomes_unreadable(poison: Callable[[], None], spec: str) -> None:
    catalog = loader.load_catalogs([100])[100]
    retriever, twin = build_retriever(spec, catalog), build_retriever(spec, catalog)
    before = [twin.rank(query, k=100) for query in QUERIES]
    poison()
    assert [retriever.rank(query, k=100) for query in QUERIES] == before


def test_a_whole_sr_episode_runs_as_before_when_the_surface_becomes_unreadable(poison: Callable[[], None]) -> None:
    before = [make_episode(name, retriever=RANDOM).run() for name in SR]
    poison()
    assert [make_episode(name, retriever=RANDOM).run() for name in SR] == before


def test_the_poison_works(poison: Callable[[], None]) -> None:
    poison()
    with pytest.raises(loader.SurfaceError, match="cannot be read"):
        loader.load_surface("development")
    with pytest.raises(PermissionError):
        (loader.ROOT / "loader.py").read_text()
    with pytest.raises(PermissionError):
        open(loader.ROOT / "loader.py").close()
    assert (loader.ROOT.parent / "pyproject.toml").read_text()
