from schemarouter.catalog import Capability as Capability
from schemarouter.catalog import Catalog as Catalog
from schemarouter.catalog import from_openai_tools as from_openai_tools
from schemarouter.catalog import load_catalog as load_catalog
from schemarouter.errors import SchemaRouterError as SchemaRouterError
from schemarouter.retrieval.base import Ranking as Ranking
from schemarouter.retrieval.base import Retriever as Retriever
from schemarouter.retrieval.registry import build_retriever as build_retriever
from schemarouter.state import Call as Call
from schemarouter.state import ExecutionState as ExecutionState
from schemarouter.state import Observation as Observation

__version__: str
__all__: list[str]
