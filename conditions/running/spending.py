"""Limits on the tokens and the money that a run spends."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from conditions.running.engines.jobs import Done, input_tokens
from schemarouter.errors import InvalidRunError, UsageError, closest
from schemarouter.files import explain
from schemarouter.records import EpisodeRecord

_MILLION = 1_000_000


class LimitReachedError(InvalidRunError):
    """A run stopped at a limit that the user set; nothing is lost, and the same command with a higher limit resumes it."""


class Price(BaseModel):
    """The price of a million tokens, in the currency of the table."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    input_per_million: float = Field(ge=0, allow_inf_nan=False)
    output_per_million: float = Field(ge=0, allow_inf_nan=False)


def load_price(path: Path, agent: str) -> Price:
    """Read an agent's price from a TOML file with a table for each agent. Raises UsageError where there is none."""
    try:
        prices = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}).") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: no TOML ({error}).") from None
    if agent not in prices:
        known = ", ".join(sorted(prices)) or "none"
        raise UsageError(
            f"{path} has no price of the agent {agent!r}; it has prices of: {known}.{closest(agent, prices)} "
            f"Add a table [{agent}]."
        )
    try:
        return Price.model_validate(prices[agent])
    except ValidationError as error:
        raise UsageError(f"{path}, [{agent}]: " + "; ".join(explain(error)[:3])) from None


class Spending:
    """What a run has spent so far, and its limits.

    A limit is checked before an episode begins, so episodes that have begun already can exceed it.
    """

    def __init__(
        self,
        *,
        max_tokens: int | None = None,
        max_cost: float | None = None,
        price: Price | None = None,
        output_tokens: Callable[[EpisodeRecord], int] = lambda record: 0,
    ) -> None:
        """`output_tokens` counts the tokens that the agent of a record wrote; it is called only where they matter."""
        if max_cost is not None and price is None:
            raise UsageError("--max-cost needs --prices: a TOML file with the price of a million tokens of the agent.")
        if price is not None and max_cost is None:
            raise UsageError("--prices has no effect without --max-cost: give both, or leave --prices out.")
        for option, value in (("--max-tokens", max_tokens), ("--max-cost", max_cost)):
            if value is not None and not value > 0:
                raise UsageError(f"{option} must be more than 0, got {value}.")
        self._max_tokens = max_tokens
        self._max_cost = max_cost
        self._output_tokens = output_tokens
        self._price = price or Price(input_per_million=0, output_per_million=0)
        self.input_tokens = 0
        self.output_tokens = 0

    @property
    def cost(self) -> float:
        """Money spent, in the currency of the price table."""
        price = self._price
        spent = self.input_tokens * price.input_per_million + self.output_tokens * price.output_per_million
        return spent / _MILLION

    def add(self, input_tokens: int, output_tokens: int) -> None:
        """Add the tokens of an attempt."""
        self.input_tokens += input_tokens
        self.output_tokens += output_tokens

    def add_done(self, done: Done) -> None:
        """Add an attempt that this process has run."""
        self.add(done.input_tokens, done.output_tokens)

    def add_recorded(self, record: EpisodeRecord) -> None:
        """Add an attempt that an earlier process has recorded."""
        self.add(input_tokens(record), self._output_tokens(record) if self.counts_output else 0)

    @property
    def limited(self) -> bool:
        """Whether there is a limit at all."""
        return self._max_tokens is not None or self._max_cost is not None

    @property
    def counts_output(self) -> bool:
        """Whether tokens that the agent writes have to be counted: they have a price, or all tokens have a limit."""
        return self._price.output_per_million > 0 or self._max_tokens is not None

    @property
    def reached(self) -> str:
        """The limit that is reached, in words; empty while none is."""
        tokens = self.input_tokens + self.output_tokens
        if self._max_tokens is not None and tokens >= self._max_tokens:
            return f"{tokens:,} of at most {self._max_tokens:,} tokens"
        if self._max_cost is not None and self.cost >= self._max_cost:
            return f"{self.cost:,.4f} of at most {self._max_cost:,.4f} spent"
        return ""
