"""The three tiers of the catalog are one kind of endpoints, and no retriever sees which tier an endpoint stands in."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import orjson
import pytest

from schemarouter.catalog import Capability, Catalog, load_catalog
from schemarouter.retrieval.language import language_of
from schemarouter.retrieval.registry import build_retriever
from schemarouter.retrieval.text import tokenize
from surface.audit import tiers
from surface.audit.quality import jaccard
from surface.loader import ROOT, asks_frozen, load_full_catalog, load_surface
from tests.toys import CHAIN, SURFACE

SIZES = (100, 250, 500)


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_full_catalog()


@pytest.fixture(scope="module")
def requests() -> tuple[tiers.Request, ...]:
    return tiers.load_requests()


def dealt(items: Sequence[Capability]) -> Catalog:
    """The endpoints with their tiers dealt in the order given: the first hundred are the smallest catalog."""
    placed = [
        item.model_copy(update={"tier": next(size for size in SIZES if place < size)})
        for place, item in enumerate(items)
    ]
    return Catalog(placed, name="dealt")


def by_measure(catalog: Catalog, measure: Callable[[Capability], float]) -> Catalog:
    """The tiers dealt so that the endpoints of which the measure is greatest are all in the smallest."""
    return dealt(sorted(catalog.capabilities, key=lambda item: -measure(item)))


def test_every_figure_of_the_contracts_is_within_its_bound(catalog: Catalog) -> None:
    found = [
        *(tiers.share(catalog, name) for name in tiers.SHARES),
        tiers.fields_with_unit(catalog),
        *(tiers.mean(catalog, name) for name in tiers.MEANS),
        tiers.tier_told(catalog),
    ]
    assert [figure for figure in found if not figure.holds] == []


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["bm25", "dense"])
def test_each_tier_fills_the_first_places_in_proportion(
    spec: str, catalog: Catalog, requests: tuple[tiers.Request, ...]
) -> None:
    figure = tiers.others_found(catalog, requests, spec, bounded=True)
    assert figure.holds, figure.value


@pytest.mark.parametrize("name", tiers.SHARES)
def test_a_share_turns_where_one_tier_has_more_than_its_part(name: str, catalog: Catalog) -> None:
    assert not tiers.share(by_measure(catalog, tiers.SHARES[name]), name).holds


@pytest.mark.parametrize("name", tiers.MEANS)
def test_a_mean_turns_where_one_tier_has_more_than_its_part(name: str, catalog: Catalog) -> None:
    assert not tiers.mean(by_measure(catalog, tiers.MEANS[name]), name).holds


def test_the_share_of_units_turns_where_one_tier_has_more_than_its_part(catalog: Catalog) -> None:
    def units(item: Capability) -> float:
        return sum(field.unit is not None for field in (*item.parameters, *item.outputs))

    assert not tiers.fields_with_unit(by_measure(catalog, units)).holds


def test_openers_read_and_need_no_identifier(catalog: Catalog) -> None:
    assert tiers.is_opener(catalog["orders.find_order"])
    assert not tiers.is_opener(catalog["orders.get_order_line"]) and not tiers.is_opener(catalog["orders.cancel_order"])


def test_a_word_that_tells_the_tier_is_found_out(catalog: Catalog) -> None:
    marked = [
        item.model_copy(update={"description": f"{item.description} Central."}) if item.tier == min(SIZES) else item
        for item in catalog.capabilities
    ]
    assert not tiers.tier_told(Catalog(marked, name="marked")).holds


def test_first_places_turn_where_one_tier_holds_what_is_found(
    catalog: Catalog, requests: tuple[tiers.Request, ...]
) -> None:
    few = requests[::10]
    retriever = build_retriever("bm25", catalog)
    found = Counter(route for item in few for route in retriever.rank(item.request, k=5).ids)
    worse = by_measure(catalog, lambda item: found[item.route_id])
    assert not tiers.others_found(worse, few, "bm25", bounded=True).holds
    assert tiers.others_found(worse, few, "bm25", bounded=False).holds, "without a bound it is only reported"


def test_the_requests_are_for_routes_drawn_evenly(catalog: Catalog, requests: tuple[tiers.Request, ...]) -> None:
    drawn = tiers.drawn_routes(catalog)
    assert {tier: len(routes) for tier, routes in drawn.items()} == dict.fromkeys(SIZES, tiers.REQUESTS_OF_A_TIER)
    assert [item.route for item in requests] == sorted(route for routes in drawn.values() for route in routes)


def test_the_requests_are_in_words_of_their_own(catalog: Catalog, requests: tuple[tiers.Request, ...]) -> None:
    assert len({item.request for item in requests}) == len(requests)
    for item in requests:
        words = frozenset(tokenize(item.request))
        assert jaccard(words, frozenset(tokenize(catalog[item.route].description))) < 0.4, item
        assert language_of(item.request) == "en", item
        assert not asks_frozen(item.request), item


def test_the_draw_does_not_depend_on_the_order_of_the_catalog(catalog: Catalog) -> None:
    turned = Catalog(reversed(catalog.capabilities), name="turned")
    assert tiers.drawn_routes(turned) == tiers.drawn_routes(catalog)
    assert tiers.drawn_routes(catalog, seed=2) != tiers.drawn_routes(catalog)


def shuffled_files(folder: Path) -> Catalog:
    """The catalog read from files in another order, with their entries in another order and in other tiers."""
    dice = random.Random(7)
    documents = [orjson.loads(path.read_bytes()) for path in sorted((ROOT / "catalog").glob("*.json"))]
    dice.shuffle(documents)
    places = [entry["tier"] for document in documents for entry in document["capabilities"]]
    dice.shuffle(places)
    for number, document in enumerate(documents):
        dice.shuffle(document["capabilities"])
        for entry in document["capabilities"]:
            entry["tier"] = places.pop()
        (folder / f"{number:03d}.json").write_bytes(orjson.dumps(document))
    return load_catalog(folder)


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["bm25", "dense", "rrf(bm25,dense)", "typed"])
def test_no_retriever_sees_tier_or_order(
    spec: str, catalog: Catalog, requests: tuple[tiers.Request, ...], tmp_path: Path
) -> None:
    other = shuffled_files(tmp_path)
    assert len(other) == max(SIZES) and [c.tier for c in other.capabilities] != [c.tier for c in catalog.capabilities]
    one, two = build_retriever(spec, catalog), build_retriever(spec, other.tier(max(SIZES)))
    for item in requests[::5]:
        assert one.rank(item.request, k=20).items == two.rank(item.request, k=20).items


def test_gold_frequency_ranks_by_how_often_a_route_was_required() -> None:
    assert tiers.gold_frequency(SURFACE, SURFACE, top_k=500).value.startswith("100.0%")
    assert tiers.gold_frequency(SURFACE, SURFACE, top_k=0).value.startswith("0.0%")
    counts = Counter(route for task in SURFACE.tasks for route in task.key.required_routes)
    first = min(counts, key=lambda route: (-counts[route], route))
    hits = sum(task.key.steps[0].route == first for task in SURFACE.tasks)
    assert f"({hits} of {len(SURFACE.tasks)})" in tiers.gold_frequency(SURFACE, SURFACE, top_k=1).value
    assert CHAIN in SURFACE.tasks


def test_gold_frequency_of_the_surfaces_has_no_bound() -> None:
    figure = tiers.gold_frequency(load_surface("training"), load_surface("development"), top_k=5)
    assert figure.holds and not figure.bound and "development" in figure.name


def test_lexicon_entries_are_counted_by_the_tier_of_their_source(catalog: Catalog, tmp_path: Path) -> None:
    entries = {
        term: {"means": ["order"], "from": source}
        for term, source in (
            ("uno", "catalog:orders.find_order"),
            ("dos", "catalog:orders.find_order"),
            ("tres", "development:dev-es-01"),
        )
    }
    (tmp_path / "es.json").write_bytes(orjson.dumps(entries))
    (tmp_path / "ko.json").write_bytes(b"{}")
    assert tiers.lexicon_entries(dealt([catalog["orders.find_order"]]), tmp_path).value == "1.0 (100)"
