"""Vectors of the tests are kept apart from the user's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SCHEMAROUTER_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
