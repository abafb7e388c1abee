"""What can be called: capabilities with their registered contracts, and the catalogs made of them."""

from __future__ import annotations

from schemarouter.catalog.capability import (
    IDENTIFIER_PATTERN,
    Capability,
    Catalog,
    CatalogError,
    Contract,
    Effect,
    JsonType,
    OutputField,
    Parameter,
    contract_json,
    from_openai_tools,
    json_type,
    load_catalog,
    matches_type,
    type_name,
)
from schemarouter.catalog.tools import route_of

__all__ = [
    "IDENTIFIER_PATTERN",
    "Capability",
    "Catalog",
    "CatalogError",
    "Contract",
    "Effect",
    "JsonType",
    "OutputField",
    "Parameter",
    "contract_json",
    "from_openai_tools",
    "json_type",
    "load_catalog",
    "matches_type",
    "route_of",
    "type_name",
]
