"""Reading surfaces: everything wrong with all files at once, each with its location."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from schemarouter.catalog import CatalogError
from schemarouter.errors import UsageError
from surface.loader import FAMILIES_FILE, TUNING, Surface, SurfaceError, load_catalogs, load_families, load_surface
from tests.toys import CHAIN, CURED, SURFACE, TASKS

CELL = "two_step_state_dependency"


def put(root: Path, stratum: str, language: str, content: Any) -> None:
    path = root / "development" / stratum / f"{language}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else orjson.dumps(content))


def cell(*tasks: Any, stratum: str = CELL, language: str = "en") -> dict[str, Any]:
    return {"stratum": stratum, "language": language, "tasks": [task.model_dump(mode="json") for task in tasks]}


def test_tasks_are_sorted_by_id_and_know_their_cell(tmp_path: Path) -> None:
    put(tmp_path, CELL, "en", cell(CURED, CHAIN))
    surface = load_surface("development", tmp_path)
    assert surface.tasks == (CHAIN, CURED)
    assert surface.cell("toy-en-01") == f"{CELL}/en" and surface.stratum("toy-en-01") == CELL
    assert surface.prompt("toy-en-01") == CHAIN.prompt and surface.key("toy-en-02") == CURED.key


def test_everything_wrong_is_told_at_once_with_its_place(tmp_path: Path) -> None:
    put(tmp_path, CELL, "en", cell(CHAIN))
    put(tmp_path, CELL, "de", b"{half")
    put(tmp_path, CELL, "ko", {"stratum": CELL, "language": "ko"})
    put(tmp_path, CELL, "es", cell(language="ja"))
    put(tmp_path, "three_step_state_dependency", "en", cell(CHAIN, stratum="three_step_state_dependency"))
    with pytest.raises(SurfaceError) as caught:
        load_surface("development", tmp_path)
    message = str(caught.value)
    for part in (
        f"{CELL}/de.json: half-written or not JSON", f"{CELL}/ko.json: tasks",
            f"{CELL}/es.json: holds the cell {CELL}/ja", "toy-en-01",
    ):  # fmt: skip
        assert part in message


@pytest.mark.parametrize(
    ("stratum", "language", "message"),
    [
        ("two_step_state_dependancy", "en", f"unknown stratum 'two_step_state_dependancy'. Did you mean '{CELL}'?"),
        (CELL, "mixd", "unknown language 'mixd'. Did you mean 'mixed'? Known: de, en, es, ja, ko, mixed."),
    ],
)
def test_a_cell_that_the_protocol_does_not_know_is_refused_with_the_nearest(
    stratum: str, language: str, message: str, tmp_path: Path
) -> None:
    put(tmp_path, stratum, language, cell(stratum=stratum, language=language))
    with pytest.raises(SurfaceError) as caught:
        load_surface("development", tmp_path)
    assert f"{stratum}/{language}.json: {message}" in str(caught.value)


def test_an_unknown_surface_or_task_is_refused_with_what_there_is() -> None:
    with pytest.raises(UsageError, match="Known: development, frozen, training"):
        load_surface("dev")
    for ask in (SURFACE.prompt, SURFACE.key):
        with pytest.raises(UsageError, match="Did you mean 'toy-en-01'"):
            ask("toy-en-11")


def test_a_surface_without_files_is_empty_and_a_catalog_size_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    assert load_surface("frozen", tmp_path).tasks == ()
    with pytest.raises(CatalogError, match="catalog 7 was asked for"):
        load_catalogs([7], tmp_path)


def test_a_surface_fingerprint_covers_prompts_keys_and_strata() -> None:
    def surface(tasks: Any, strata: Any) -> str:
        return Surface("development", tasks, strata).fingerprint

    strata = dict(SURFACE.strata)
    key = CHAIN.key.model_copy(update={"authorised": ("aux.purge",)})
    prompt = CHAIN.prompt.model_copy(update={"query": "Blue lamp?"})
    changed = [
        surface((CHAIN.model_copy(update={"key": key}), *TASKS[1:]), strata),
        surface((CHAIN.model_copy(update={"prompt": prompt}), *TASKS[1:]), strata),
        surface(TASKS, {**strata, "toy-en-01": "other"}),
        surface(TASKS[1:], strata),
    ]
    assert len({SURFACE.fingerprint, *changed}) == 5
    assert surface(TASKS, strata) == SURFACE.fingerprint


def test_families_are_named_after_their_first_task_and_no_task_is_in_two(tmp_path: Path) -> None:
    path = tmp_path / FAMILIES_FILE
    path.write_text('{"families": [["trn-en-02", "dev-de-01"], ["dev-ko-01", "dev-en-01"]]}', encoding="utf-8")
    found = load_families(tmp_path)
    assert found == {
        "trn-en-02": "dev-de-01",
        "dev-de-01": "dev-de-01",
        "dev-ko-01": "dev-en-01",
        "dev-en-01": "dev-en-01",
    }
    assert Surface("development", (), {}, found).family("dev-ko-01") == "dev-en-01"
    assert Surface("development", (), {}, found).family("dev-ko-02") == "dev-ko-02"
    load_families.cache_clear()
    for text, message in (
        ('{"families": [["a-en-01", "a-en-02"], ["a-en-02", "a-en-03"]]}', "a-en-02 in more than one family"),
        ('{"families": [["a-en-01"]]}', "families of one task"),
        ('{"families": [["one", "two"]]}', "families"),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(SurfaceError, match=message):
            load_families(tmp_path)


def test_every_task_of_a_family_stands_in_a_surface() -> None:
    known = {task.prompt.id for name in TUNING for task in load_surface(name).tasks}
    assert set(load_families()) <= known
