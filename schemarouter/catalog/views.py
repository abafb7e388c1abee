"""What a catalog registers, or only what most catalogs do: names, types and descriptions."""

from __future__ import annotations

from typing import Any, Literal, get_args

from schemarouter.catalog import Capability, Catalog

CatalogView = Literal["full", "names-only"]
VIEWS: tuple[CatalogView, ...] = get_args(CatalogView)
_BARE: dict[str, Any] = {
    "semantic_id": None,
    "unit": None,
    "dimension": None,
    "qualifiers": {},
    "identifier": False,
    "example": None,
}


def viewed(catalog: Catalog, view: CatalogView) -> Catalog:
    """The catalog itself, or without semantic ids, units, dimensions, qualifiers, identifier flags and examples."""
    if view == "full":
        return catalog
    return Catalog((_bare(item) for item in catalog.capabilities), name=f"{catalog.name} names-only")


def _bare(capability: Capability) -> Capability:
    told = capability.model_dump()
    for part in ("parameters", "outputs"):
        told[part] = [{**field, **_BARE} for field in told[part]]
    return Capability.model_validate(told)
