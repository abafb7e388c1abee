"""Running single episodes of a grid; what they need is built once and shared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from conditions.registry import make_condition
from conditions.running.episode import Episode, output_tokens
from conditions.running.plan import Unit
from conditions.running.provenance import require_same_code
from preregistration.lock import scoring_refusal
from preregistration.names import ORACLE
from preregistration.protocol import Protocol, load_protocol
from schemarouter.agents import registry as agents
from schemarouter.agents.base import Action, Agent, AgentView, Guide
from schemarouter.caches import Bounded
from schemarouter.catalog import Catalog
from schemarouter.catalog.views import CatalogView, viewed
from schemarouter.errors import InvalidRunError
from schemarouter.policy import Policy, StandardPolicy
from schemarouter.records import EpisodeRecord
from schemarouter.retrieval import registry as retrievers
from schemarouter.retrieval.base import Ranking, Retriever
from schemarouter.retrieval.spec import Spec
from schemarouter.tokens import TokenCounter, cached_counts, load_tokenizer
from surface.environment import Environment, PlanGuide
from surface.loader import Surface, asks_frozen, load_catalogs, load_surface


class OpeningRankings:
    """A retriever that remembers its rankings: all conditions of a task open with the same one."""

    def __init__(self, retriever: Retriever) -> None:
        self._retriever = retriever
        self._known: dict[tuple[str, int], Ranking] = {}

    def rank(self, query: str, *, k: int) -> Ranking:
        """The ranking of the wrapped retriever."""
        known = self._known.get((query, k))
        if known is None:
            known = self._retriever.rank(query, k=k)
            self._known[(query, k)] = known
        return known


# Depends on nothing that is locked: for wall times of the grid, of which no record is kept.
TIMING_RETRIEVER = "random(seed=1)"
_MAX_AGENTS = 256
AgentFactory = Callable[[Guide], Agent]


class LazyAgent:
    """An agent that is made at its first turn, so that an error in making it is an error of the episode."""

    def __init__(self, make: AgentFactory, guide: Guide) -> None:
        self._make = make
        self._guide = guide
        self._agent: Agent | None = None

    def act(self, view: AgentView) -> Action:
        """The action of the agent."""
        if self._agent is None:
            self._agent = self._make(self._guide)
        return self._agent.act(view)


class Runner:
    """Runs units of a grid: builds what they need once and shares it.

    The retriever is built over the catalogs in `view`; everything else sees whole catalogs. `agent_factory`, `policy` and
    `built_retrievers` (by catalog size) replace those of the experiment, for tests.
    """

    def __init__(
        self,
        protocol: Protocol,
        surface: Surface,
        catalogs: Mapping[int, Catalog],
        *,
        retriever: Spec,
        agent: Spec,
        view: CatalogView = "full",
        agent_factory: AgentFactory | None = None,
        policy: Policy | None = None,
        built_retrievers: Mapping[int, Retriever] | None = None,
    ) -> None:
        self._protocol = protocol
        self._surface = surface
        self._catalogs = catalogs
        self._retriever_spec = retriever
        self._view = view
        # An unknown agent is refused now, not as the failure of every episode.
        self._agent = agents.resolve(agent) if agent_factory is None else agent
        self._agent_factory = agent_factory
        self._agents: Bounded[int, AgentFactory] = Bounded(_MAX_AGENTS)
        self._policy = policy or StandardPolicy()
        self._retrievers: dict[int, Retriever] = dict(built_retrievers or {})
        self._scorable: set[tuple[str, str]] = set()
        self._timing = str(retriever) == TIMING_RETRIEVER and built_retrievers is None
        self._counter = TokenCounter(cached_counts())

    def retriever(self, size: int) -> Retriever:
        """The retriever over the catalog of that size, built at first use."""
        if size not in self._retrievers:
            self._retrievers[size] = OpeningRankings(
                retrievers.build_retriever(self._retriever_spec, viewed(self._catalogs[size], self._view))
            )
        return self._retrievers[size]

    def prepare(self, size: int) -> None:
        """Build the retriever and load the tokenizer, which would else take time of the first episode over the catalog."""
        self.retriever(size)
        load_tokenizer()

    def _refuse_unscorable(self, unit: Unit) -> None:
        """Raise InvalidRunError for a condition that retrieves on a surface whose lock is not released."""
        asked = self._surface.prompt(unit.task).query
        surface = "frozen" if asks_frozen(asked) else self._surface.name
        if self._timing or (surface, unit.condition) in self._scorable:
            return
        reason = scoring_refusal(surface, (unit.condition,))
        if reason:
            raise InvalidRunError(reason)
        # A released lock stays released; it is not read again for every episode.
        self._scorable.add((surface, unit.condition))

    def _make_agent(self, repeat: int) -> AgentFactory:
        """The factory of an episode's agent; its spec is read once a repeat."""
        if self._agent_factory is not None:
            return self._agent_factory
        if repeat not in self._agents:
            self._agents[repeat] = agents.prepared(agents.seeded(self._agent, repeat))
        return self._agents[repeat]

    def run(self, unit: Unit, *, attempt: int = 1) -> EpisodeRecord:
        """Run one episode to its end."""
        self._refuse_unscorable(unit)
        prompt, key = self._surface.prompt(unit.task), self._surface.key(unit.task)
        catalog = self._catalogs[unit.catalog]
        environment = Environment(key, catalog, seed_text=prompt.id)
        condition = make_condition(
            unit.condition,
            self.retriever(unit.catalog),
            catalog,
            self._protocol.conditions,
            required_routes=key.required_routes if unit.condition == ORACLE else (),
        )
        return Episode(
            task_id=prompt.id,
            catalog_size=unit.catalog,
            query=prompt.query,
            authorised=key.authorised,
            catalog=catalog,
            condition=condition,
            agent=LazyAgent(self._make_agent(unit.repeat), PlanGuide(environment.progress, catalog)),
            environment=environment,
            policy=self._policy,
            counter=self._counter,
            max_model_turns=self._protocol.episode.max_model_turns,
            attempt=attempt,
            repeat=unit.repeat,
        ).run()

    def output_tokens(self, record: EpisodeRecord) -> int:
        """Tokens that the agent of an attempt wrote."""
        return output_tokens(record, self._counter)


@dataclass(frozen=True)
class Setup:
    """The inputs of a run by name: enough to build its runner in any process."""

    surface: str
    retriever: str
    agent: str
    view: CatalogView = "full"
    code: str = ""

    def __call__(self) -> Runner:
        """Build the runner. Raises SchemaRouterError for an unknown name, and where this process has other code than `code`."""
        if self.code:
            require_same_code(self.code)
        protocol = load_protocol(self.surface)
        return Runner(
            protocol,
            load_surface(self.surface),
            load_catalogs(protocol.catalogs),
            retriever=retrievers.resolve(self.retriever),
            agent=agents.resolve(self.agent),
            view=self.view,
        )
