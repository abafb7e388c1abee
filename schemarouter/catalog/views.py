"""A catalog as it is registered, or reduced to what most catalogs have: names, types and descriptions."""

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
    """Reduce a catalog to a view.

    Args:
        catalog: The catalog.
        view: ``full``, or ``names-only``: without semantic ids, units, dimensions, qualifiers, identifier flags, examples.

    Returns:
        The catalog itself for ``full``, else a reduced copy.
    """
    if view == "full":
        return catalog
    return Catalog((_bare(item) for item in catalog.capabilities), name=f"{catalog.name} names-only")


def _bare(capability: Capability) -> Capability:
    fields = capability.model_dump()
    for part in ("parameters", "outputs"):
        fields[part] = [{**field, **_BARE} for field in fields[part]]
    return Capability.model_validate(fields)
