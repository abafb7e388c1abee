"""Which errors are infrastructure failures: what they are and what they wrap decides, never what they say."""

from __future__ import annotations

import errno
import socket
from typing import Any
from urllib.error import URLError

import pytest

from conditions.running.episode import is_infrastructure
from schemarouter.records import Ended
from tests.toys import Scripted, make_episode


def reason(error: BaseException) -> str:
    """How an episode ends whose agent raises the error."""
    last = make_episode(agent=Scripted([error])).run().events[-1]
    assert isinstance(last, Ended)
    return last.reason


def raised(
    error: BaseException, outer: BaseException, *, cause: BaseException | None = None, hidden: bool = False
) -> Any:
    """`outer` as it is raised while `error` is handled, `from` a cause, or from None where `hidden`."""
    try:
        try:
            raise error
        except BaseException:
            if hidden or cause is not None:
                raise outer from cause
            raise outer  # noqa: B904
    except BaseException as caught:
        return caught


def client_error(name: str, module: str, base: type[Exception] = Exception) -> Exception:
    """An error of a subclass of a client's class of this name."""
    parent = type(name, (base,), {"__module__": module})
    return type("Special", (parent,), {"__module__": "stranger"})("refused")  # type: ignore[no-any-return]


def circle() -> Exception:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    return one


REFUSED = ConnectionRefusedError(errno.ECONNREFUSED, "refused")


@pytest.mark.parametrize(
    "error",
    [
        ConnectionError("no number"),
        TimeoutError(),
        socket.gaierror(socket.EAI_NONAME, "unknown host"),
        URLError(REFUSED),
        URLError(socket.gaierror(socket.EAI_AGAIN, "try again")),
        OSError(RuntimeError("outer"), REFUSED),
        raised(REFUSED, RuntimeError("the model did not answer"), cause=REFUSED),
        raised(KeyError("other"), RuntimeError("the model did not answer"), cause=URLError(REFUSED)),
        raised(REFUSED, RuntimeError("the model did not answer")),
        ExceptionGroup("two at once", [ValueError("x"), REFUSED]),
        *(client_error(name, "httpx") for name in ("ConnectError", "ConnectTimeout", "ReadTimeout", "PoolTimeout")),
        *(client_error(name, "openai") for name in ("APIConnectionError", "APITimeoutError")),
        *(client_error(name, "requests.exceptions", OSError) for name in ("ConnectionError", "Timeout")),
    ],
    ids=repr,
)
def test_what_an_error_wraps_and_the_errors_of_clients_are_infrastructure(error: Exception) -> None:
    assert is_infrastructure(error)
    assert reason(error) == "infrastructure"


@pytest.mark.parametrize(
    "error",
    [
        AssertionError("ConnectionError: connection refused"),
        ValueError("APITimeoutError", REFUSED),
        URLError("unknown url type"),
        client_error("Timeout", "stranger"),
        client_error("ConnectionFormatError", "httpx"),
        raised(KeyError("x"), ValueError("y")),
        raised(REFUSED, ValueError("the fallback of the agent is wrong"), hidden=True),
        circle(),
    ],
    ids=repr,
)
def test_an_error_that_only_speaks_of_a_connection_is_somebodys_code(error: Exception) -> None:
    assert not is_infrastructure(error)
    assert reason(error) == "exception"
