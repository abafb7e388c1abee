"""The preregistration: the numbers that are frozen, and a file that is refused when it is anything else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from conditions.registry import CONDITIONS
from preregistration.protocol import FILES, FOLDER, Protocol, load_protocol
from schemarouter.agents import registry as agents
from schemarouter.errors import InvalidRunError, UsageError
from schemarouter.retrieval import registry as retrievers

FROZEN = load_protocol("frozen")
DEVELOPMENT, TRAINING = load_protocol("development"), load_protocol("training")
RULES = FROZEN.conditions.model_dump(mode="json")
STATISTICS = FROZEN.statistics.model_dump(mode="json")


def test_the_frozen_numbers_are_those_of_the_experiment() -> None:
    rules, gate, statistics = FROZEN.conditions, FROZEN.gate, FROZEN.statistics
    assert (FROZEN.catalogs, FROZEN.tasks_per_cell) == ((100, 250, 500), 6)
    assert rules.names == ("SR-5-STATIC", "SR-PROGRESSIVE-STATIC", "SR-5-STATE-AWARE", "FULL", "ORACLE")
    assert (rules.top_k, rules.progressive_stages, rules.refresh_budget) == (5, (5, 10, 20), 5)
    assert (FROZEN.episode.max_model_turns, FROZEN.episode.max_steps_and_failures) == (12, 6)
    assert (gate.max_pass_loss_percentage_points, gate.min_recall_percent) == (2, 97)
    assert (gate.max_unauthorised_destructive, gate.min_integrity_percent) == (0, 100)
    assert (statistics.iterations, statistics.seed, statistics.level) == (10_000, 20260929, 0.95)
    assert (statistics.stratify_by, DEVELOPMENT.statistics.stratify_by) == ("stratum_language", "stratum")
    assert (DEVELOPMENT.tasks_per_cell, FROZEN.agent) == (3, "reference")
    cells = len(FROZEN.strata) * len(FROZEN.languages)
    assert cells * FROZEN.tasks_per_cell * len(FROZEN.catalogs) * len(rules.names) == 2_700


@pytest.mark.parametrize("protocol", [FROZEN, TRAINING, DEVELOPMENT], ids=lambda protocol: protocol.name)
def test_a_protocol_names_things_that_exist(protocol: Protocol) -> None:
    assert set(protocol.conditions.names) <= set(CONDITIONS)
    assert str(retrievers.resolve(protocol.retriever)) and str(agents.resolve(protocol.agent))


def test_only_the_frozen_protocol_is_confirmatory() -> None:
    assert (FROZEN.surface, FROZEN.confirmatory) == ("frozen", True)
    assert (DEVELOPMENT.surface, DEVELOPMENT.confirmatory) == ("development", False)
    assert (TRAINING.surface, TRAINING.confirmatory) == ("training", False)


def test_the_development_protocol_keeps_every_rule_of_the_frozen_one() -> None:
    for part in ("conditions", "episode", "gate", "retriever", "agent"):
        assert getattr(FROZEN, part) == getattr(DEVELOPMENT, part) == getattr(TRAINING, part)


@pytest.mark.parametrize(
    "words", ["deterministic", "12 model turns", "5, 10, 20", "without a tool turn", "partial order"]
)
def test_deviations_from_the_source_experiment_are_listed(words: str) -> None:
    assert any(words in line for line in FROZEN.deviations) and any(
        "does not replicate" in line for line in FROZEN.deviations
    )


def test_a_ranking_is_kept_as_deep_as_the_state_aware_condition_can_come_to_expose() -> None:
    rules = FROZEN.conditions
    assert rules.ranking_depth == 30
    assert rules.model_copy(update={"refresh_budget": 1}).ranking_depth == 20


def put(folder: Path, change: Any) -> None:
    value = orjson.loads((FOLDER / FILES["frozen"]).read_bytes())
    (folder / FILES["frozen"]).write_bytes(change if isinstance(change, bytes) else orjson.dumps({**value, **change}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (b"{", "not JSON"),
        (b"[]", "corrective-reretrieval-v2.json: "),
        ({"surprise": 1}, "surprise: Extra inputs"),
        ({"tasks_per_cell": "6"}, "tasks_per_cell"),
        ({"tasks_per_cell": 0}, "tasks_per_cell"),
        ({"confirmatory": 1}, "confirmatory"),
        ({"gate": {}}, "gate.min_recall_percent"),
        ({"surface": "mine"}, "surface"),
        ({"surface": "development"}, "corrective-reretrieval-v2.json: is the protocol of the development surface"),
        ({"schema_version": 2}, "schema_version"),
        ({"catalogs": []}, "catalogs: Tuple should have at least 1 item"),
        ({"catalogs": [100, 250, 100]}, "catalogs: Value error, given twice: 100"),
        ({"catalogs": [0]}, "catalogs.0: Input should be greater than or equal to 1"),
        ({"strata": []}, "strata: Tuple should have at least 1 item"),
        ({"languages": ["en", "en"]}, "languages: Value error, given twice: en"),
        ({"statistics": {**STATISTICS, "seed": -1}}, "statistics.seed: Input should be greater than or equal to 0"),
        ({"conditions": {**RULES, "names": []}}, "conditions.names: Tuple should have at least 1 item"),
        ({"conditions": {**RULES, "names": ["FULL", "FULL"]}}, "conditions.names: Value error, given twice: FULL"),
        ({"conditions": {**RULES, "progressive_stages": []}}, "conditions.progressive_stages: Tuple should have"),
        ({"conditions": {**RULES, "progressive_stages": [0, 5]}}, "conditions.progressive_stages.0: Input should be"),
        ({"conditions": {**RULES, "progressive_stages": [5, 5]}}, "each is larger than the one before it"),
        ({"conditions": {**RULES, "progressive_stages": [10, 5]}}, "each is larger than the one before it"),
    ],
)
def test_an_altered_protocol_is_refused_with_the_field(tmp_path: Path, change: Any, message: str) -> None:
    put(tmp_path, change)
    with pytest.raises(InvalidRunError) as caught:
        load_protocol("frozen", tmp_path)
    assert message in str(caught.value)


def test_a_missing_protocol_and_an_unknown_surface_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRunError, match="cannot be read"):
        load_protocol("frozen", tmp_path)
    with pytest.raises(UsageError, match="Known: development, frozen, training"):
        load_protocol("dev", tmp_path)
