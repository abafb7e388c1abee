"""What can be called: capabilities with their registered contracts, and catalogs of them.

Example:
    >>> from schemarouter.catalog import from_openai_tools
    >>> tool = {"name": "orders__find", "parameters": {"properties": {"name": {"type": "string"}}, "required": ["name"]}}
    >>> catalog = from_openai_tools([tool])
    >>> catalog["orders.find"].argument_errors({})
    ["missing required argument 'name'"]
"""

from __future__ import annotations

from schemarouter.catalog.capability import (
    IDENTIFIER_PATTERN,
    Capability,
    CatalogError,
    Contract,
    Effect,
    JsonType,
    OutputField,
    Parameter,
    json_type,
    matches_type,
    type_name,
)
from schemarouter.catalog.catalog import Catalog, contract_json, from_openai_tools, load_catalog
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
