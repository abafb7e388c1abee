"""The registered retrievers. A new one is a file with DECLARATION and build, and one line here."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

from schemarouter.canonical import fingerprint
from schemarouter.catalog import Catalog
from schemarouter.retrieval.base import Entry, Retriever, entries_of
from schemarouter.retrieval.spec import Declaration, Spec, parse, registered_module

# Name of the retriever -> module with its DECLARATION and build(); imported at first use.
RETRIEVERS: dict[str, str] = {
    "bm25": "schemarouter.retrieval.bm25",
    "dense": "schemarouter.retrieval.dense",
    "random": "schemarouter.retrieval.random",
    "rrf": "schemarouter.retrieval.fusion",
    "typed": "schemarouter.retrieval.typed",
}


def _module(name: str) -> ModuleType:
    return registered_module("retriever", name, RETRIEVERS)


def declaration(name: str) -> Declaration:
    """Return the options that a retriever takes. Raises SpecError for an unknown name."""
    options: Declaration = _module(name).DECLARATION
    return options


def resolve(spec: Spec | str) -> Spec:
    """Write out every default of a spec at every level: the identity of a retriever.

    Args:
        spec: A spec, or a spec string.

    Returns:
        The full spec.

    Raises:
        SpecError: For a string that does not parse, and for what no retriever takes.

    Example:
        >>> str(resolve("rrf(bm25,random)"))
        'rrf(bm25(b=0.75,epsilon=0.25,k1=1.5),random(seed=1),k=60)'
    """
    given = parse(spec) if isinstance(spec, str) else spec
    return declaration(given.name).resolve(given, tuple(resolve(item) for item in given.nested))


def build_retriever(spec: Spec | str, entries: Catalog | Sequence[Entry]) -> Retriever:
    """Build a retriever over a catalog or any list of entries.

    Args:
        spec: A spec, or a spec string such as ``bm25(k1=1.2)``.
        entries: What it ranks: a catalog, or entries with ids and texts.

    Returns:
        The retriever; queries do not change it.

    Raises:
        SpecError: For a spec string that does not parse, and for what no retriever takes.
        SchemaRouterError: Where a model that the spec names is not found.

    Example:
        >>> entries = [Entry("find", "find an order"), Entry("cancel", "cancel an order")]
        >>> build_retriever("bm25", entries).rank("cancel it", k=5).ids
        ('cancel',)
    """
    full = resolve(spec)
    items = entries_of(entries) if isinstance(entries, Catalog) else entries
    return _build(full, items)


def fitted_to(spec: Spec | str, surface: str) -> bool:
    """Whether a retriever, or one nested in it, was fitted to the tasks of a surface; an unknown one is not known to be."""
    given = parse(spec) if isinstance(spec, str) else spec
    own = given.name in RETRIEVERS and surface in declaration(given.name).fitted_to
    return own or any(fitted_to(item, surface) for item in given.nested)


def data_fingerprint(spec: Spec | str) -> str:
    """Return the SHA-256 of what a retriever reads besides entries and queries: models, word lists, weights. Raises SpecError."""
    return fingerprint(_data(resolve(spec)))


def _data(spec: Spec) -> dict[str, object]:
    identity = getattr(_module(spec.name), "data_identity", None)
    own = identity(declaration(spec.name).values(spec)) if identity is not None else ""
    return {"name": spec.name, "data": own, "nested": [_data(item) for item in spec.nested]}


def _build(spec: Spec, entries: Sequence[Entry]) -> Retriever:
    nested = [_build(item, entries) for item in spec.nested]
    retriever: Retriever = _module(spec.name).build(entries, declaration(spec.name).values(spec), nested)
    return retriever
