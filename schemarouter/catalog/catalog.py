"""Catalogs: sets of capabilities, read from provider files or from tools in the OpenAI function format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from schemarouter.canonical import fingerprint
from schemarouter.catalog.capability import Capability, CatalogError, Provider, type_name
from schemarouter.catalog.tools import read_tool
from schemarouter.errors import unknown
from schemarouter.files import explain, read_json


class Catalog:
    """An immutable set of capabilities, sorted by route id.

    Args:
        capabilities: The capabilities, in any order.
        name: What errors and records call the catalog; a nested one is named after its size.

    Attributes:
        capabilities: The capabilities, by route id.
        route_ids: Their route ids, sorted.

    Raises:
        CatalogError: When a route is given twice.

    Example:
        >>> find = Capability(provider="orders", operation="find", description="Find an order.", effect="read")
        >>> catalog = Catalog([find], name="orders")
        >>> len(catalog), "orders.find" in catalog, catalog["orders.find"].effect
        (1, True, 'read')
    """

    __slots__ = ("__dict__", "_by_route", "capabilities", "name", "route_ids")

    def __init__(self, capabilities: Iterable[Capability], *, name: str) -> None:
        self.capabilities = tuple(sorted(capabilities, key=lambda item: item.route_id))
        self.name = name
        self.route_ids = tuple(item.route_id for item in self.capabilities)
        self._by_route = {item.route_id: item for item in self.capabilities}
        if len(self._by_route) != len(self.capabilities):
            twice = sorted({route for route in self.route_ids if self.route_ids.count(route) > 1})
            raise CatalogError(f"catalog {name!r} holds a route more than once: {', '.join(twice)}")

    def __len__(self) -> int:
        return len(self.capabilities)

    def __contains__(self, route_id: object) -> bool:
        return route_id in self._by_route

    def get(self, route_id: str) -> Capability | None:
        """Return the capability of a route, or None where there is none; ``catalog[route]`` raises CatalogError instead."""
        return self._by_route.get(route_id)

    def __getitem__(self, route_id: str) -> Capability:
        capability = self._by_route.get(route_id)
        if capability is None:
            raise CatalogError(unknown("route", route_id, self.route_ids))
        return capability

    @cached_property
    def routes(self) -> frozenset[str]:
        """The route ids as a set."""
        return frozenset(self.route_ids)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over the contract of every capability, tiers aside: they say which catalogs hold it, not what it is."""
        return fingerprint([contract_json(item) for item in self.capabilities])

    def tier(self, size: int) -> Catalog:
        """Return the nested catalog of a size: the capabilities whose tier is at most that.

        Args:
            size: How many capabilities it holds.

        Raises:
            CatalogError: When the capabilities up to that tier are not exactly so many.
        """
        chosen = [item for item in self.capabilities if item.tier <= size]
        if len(chosen) != size:
            raise CatalogError(
                f"catalog {size} was asked for, but {len(chosen)} capabilities have a tier up to {size}."
            )
        return Catalog(chosen, name=str(size))


def contract_json(capability: Capability) -> dict[str, Any]:
    """Return the contract of a capability as JSON values, without its tier."""
    return capability.model_dump(mode="json", exclude={"tier"})


class _ProviderFile(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    provider: Provider
    title: str
    about: str
    capabilities: tuple[dict[str, Any], ...] = Field(strict=False)


def _read_provider(path: Path) -> tuple[list[Capability], list[str]]:
    """The valid capabilities of a provider file, and everything that is wrong with its header and the others."""
    raw = read_json(path, CatalogError, path.name)
    problems: list[str] = []
    try:
        _ProviderFile.model_validate(raw)
    except ValidationError as error:
        problems = explain(error)
    whole = raw if isinstance(raw, dict) else {}
    # A wrong provider in the header is reported once, not again with every capability.
    provider = "provider" if any(line.startswith("provider: ") for line in problems) else whole.get("provider")
    entries = whole.get("capabilities")
    capabilities = []
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        if not isinstance(entry, dict):
            continue
        try:
            capabilities.append(Capability.model_validate({"provider": provider, **entry}))
        except ValidationError as error:
            label = entry.get("operation", f"#{index}")
            problems += [f"{label}.{line}" for line in explain(error)]
    return capabilities, problems


def load_catalog(folder: Path | str, *, name: str = "all") -> Catalog:
    """Read the provider files of a folder, as the experiment's own catalogs are stored.

    Args:
        folder: Folder of JSON files, each with ``provider``, ``title``, ``about`` and a list of ``capabilities``.
        name: What errors and records call the catalog.

    Returns:
        The catalog of all capabilities.

    Raises:
        CatalogError: With all mistakes of all files.
    """
    capabilities: list[Capability] = []
    problems: list[str] = []
    for path in sorted(Path(folder).glob("*.json")):
        try:
            usable, wrong = _read_provider(path)
        except CatalogError as error:
            problems.append(str(error))
            continue
        capabilities += usable
        if wrong:
            problems.append(f"{path.name}: " + "; ".join(wrong))
    return _catalog_of(capabilities, problems, name)


def _catalog_of(capabilities: list[Capability], problems: list[str], name: str) -> Catalog:
    """Build a catalog. Raises CatalogError with the problems of its parts, one a line, and those of the whole."""
    try:
        catalog = Catalog(capabilities, name=name)
    except CatalogError as error:
        raise CatalogError("\n".join([*problems, str(error)])) from None
    if problems:
        raise CatalogError("\n".join(problems))
    return catalog


def from_openai_tools(tools: Sequence[Mapping[str, Any]], *, name: str = "tools") -> Catalog:
    """Build a catalog from tools in the OpenAI function format, or the like (``inputSchema``, ``outputSchema``).

    Units and semantic ids are not known of such tools, and every effect is ``write``.

    Args:
        tools: The tools, with or without the wrapper ``{"type": "function", "function": ...}``; outputs are registered where
            a tool has ``outputSchema`` or ``returns``.
        name: What errors and records call the catalog.

    Returns:
        The catalog; the route of a tool is ``route_of(its name)``.

    Raises:
        CatalogError: With everything that cannot be registered, tool by tool.

    Example:
        >>> tool = {"name": "orders__find", "description": "Find an order.", "inputSchema": {"properties": {"name": {}}}}
        >>> from_openai_tools([tool]).route_ids
        ('orders.find',)
    """
    if isinstance(tools, str | bytes | Mapping) or not isinstance(tools, Iterable):
        raise CatalogError(f"tools must be a list of tools, got {type_name(tools)}.")
    capabilities: list[Capability] = []
    problems: list[str] = []
    tools_of: dict[str, list[str]] = {}
    for index, tool in enumerate(tools):
        label, contract, wrong = read_tool(tool, index)
        try:
            capability = Capability.model_validate(contract)
        except ValidationError as error:
            wrong += explain(error)
        else:
            if not wrong and capability.route_id not in tools_of:
                capabilities.append(capability)
            tools_of.setdefault(capability.route_id, []).append(label)
        if wrong:
            problems.append(f"tool {label}: " + "; ".join(wrong))
    for route, labels in tools_of.items():
        if len(labels) > 1:
            problems.append(f"tools {' and '.join(labels)} would be one route, {route}; rename all but one")
    return _catalog_of(capabilities, problems, name)
