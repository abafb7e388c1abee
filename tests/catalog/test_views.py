"""Views of a catalog: all that is registered, or names, types and descriptions alone."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from schemarouter.catalog import Capability, Catalog, Contract
from schemarouter.catalog.views import CatalogView, viewed
from schemarouter.retrieval.base import describe
from surface.loader import load_catalogs
from tests.strategies import capabilities, laws
from tests.toys import CATALOG

FEW = laws(25)
SILENT: dict[str, Any] = {
    "semantic_id": None, "unit": None, "dimension": None, "qualifiers": {}, "identifier": False, "example": None
}  # fmt: skip
TOLD = {"name", "type", "description", "enum", "required"}
small = st.lists(capabilities(), max_size=4, unique_by=lambda item: item.route_id).map(
    lambda items: Catalog(items, name="x")
)


def fields(item: Capability) -> list[Contract]:
    return [*item.parameters, *item.outputs]


def kept(item: Contract) -> dict[str, Any]:
    return {name: value for name, value in item.model_dump().items() if name in TOLD}


def test_the_full_view_is_the_catalog_itself() -> None:
    assert viewed(CATALOG, "full") is CATALOG
    assert get_args(CatalogView) == ("full", "names-only")


@FEW
@given(catalog=small | st.just(CATALOG))
@example(catalog=CATALOG)
def test_names_only_keeps_names_types_and_descriptions_and_nothing_else(catalog: Catalog) -> None:
    bare = viewed(catalog, "names-only")
    assert bare.route_ids == catalog.route_ids
    for item, original in zip(bare.capabilities, catalog.capabilities, strict=True):
        whole = item.model_dump(exclude={"parameters", "outputs"})
        assert whole == original.model_dump(exclude={"parameters", "outputs"})
        assert [kept(field) for field in fields(item)] == [kept(field) for field in fields(original)]
        for field in fields(item):
            assert {name: value for name, value in field.model_dump().items() if name not in TOLD} == SILENT


@FEW
@given(catalog=small)
def test_a_view_of_a_view_is_the_same_and_the_catalog_is_left_as_it_was(catalog: Catalog) -> None:
    before = catalog.fingerprint
    bare = viewed(catalog, "names-only")
    assert viewed(bare, "names-only").capabilities == bare.capabilities
    assert viewed(bare, "full") is bare
    assert Catalog(catalog.capabilities, name="again").fingerprint == before


def test_a_view_has_a_name_and_a_fingerprint_of_its_own() -> None:
    bare = viewed(CATALOG, "names-only")
    assert bare.name == f"{CATALOG.name} names-only"
    assert bare.fingerprint != CATALOG.fingerprint
    assert [item.tier for item in bare.capabilities] == [item.tier for item in CATALOG.capabilities]


@pytest.mark.parametrize("size", [100])
def test_the_view_of_a_smaller_catalog_is_the_smaller_catalog_of_the_view(size: int) -> None:
    catalogs = load_catalogs([size, 500])
    assert (
        viewed(catalogs[500], "names-only").tier(size).capabilities == viewed(catalogs[size], "names-only").capabilities
    )


def test_only_names_that_end_in_id_are_identifiers_without_registration() -> None:
    for item in viewed(load_catalogs([100])[100], "names-only").capabilities:
        assert all(field.is_identifier == field.name.endswith("_id") for field in fields(item))


def test_the_text_of_an_entry_holds_no_meaning_or_unit_of_the_whole_catalog() -> None:
    for item in viewed(CATALOG, "names-only").capabilities:
        assert not {"order.id", "load.mass", "kg", "shipment.id"} & set(describe(item).split())
