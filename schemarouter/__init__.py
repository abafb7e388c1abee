"""SchemaRouter Research: does retrieval from typed, observed execution state bring a missed tool back?

The names of the core are imported at their first use; `schemarouter.experiment` runs, aggregates and judges the experiment.

Example:
    >>> import schemarouter
    >>> tool = {"type": "function", "function": {"name": "orders__find", "description": "Find an order by its name."}}
    >>> catalog = schemarouter.from_openai_tools([tool])
    >>> schemarouter.build_retriever("bm25", catalog).rank("where is my order?", k=5).ids
    ('orders.find',)
"""

from importlib import import_module

__version__ = "0.1.0"

_MODULES = {
    "Call": "schemarouter.state",
    "Capability": "schemarouter.catalog",
    "Catalog": "schemarouter.catalog",
    "ExecutionState": "schemarouter.state",
    "Observation": "schemarouter.state",
    "Ranking": "schemarouter.retrieval.base",
    "Retriever": "schemarouter.retrieval.base",
    "SchemaRouterError": "schemarouter.errors",
    "build_retriever": "schemarouter.retrieval.registry",
    "from_openai_tools": "schemarouter.catalog",
    "load_catalog": "schemarouter.catalog",
}
__all__ = ["__version__", *_MODULES]  # noqa: PLE0604 (its items are strings)


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'schemarouter' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(_MODULES[name]), name)
