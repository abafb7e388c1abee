"""Registered contracts: what the fingerprint covers, what a file may hold, what a call may say, what a tool looks like."""

from __future__ import annotations

import copy
import importlib
import pickle
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from schemarouter.catalog import (
    Capability,
    Catalog,
    CatalogError,
    JsonType,
    OutputField,
    Parameter,
    load_catalog,
)
from tests.strategies import LAWS, names, units, words

# jsonschema has no type hints.
jsonschema: Any = importlib.import_module("jsonschema")
TYPES: list[JsonType] = ["null", "boolean", "integer", "number", "string", "array", "object"]
RICH: dict[str, Any] = {
    "name": "mass",
    "type": "string",
    "description": "how heavy",
    "semantic_id": "load.mass",
    "unit": "kg",
    "dimension": "mass",
    "qualifiers": {"basis": "net", "site": "a"},
    "identifier": False,
    "enum": ["a", "b"],
    "example": "a",
}
CAPABILITY: dict[str, Any] = {
    "provider": "fleet",
    "operation": "weigh",
    "description": "weighs a load",
    "effect": "read",
    "tier": 100,
    "parameters": [{**RICH, "required": True}, {"name": "lease_id", "type": "string", "required": False}],
    "outputs": [RICH, {"name": "total", "type": "number"}],
}
OTHER_FIELD: dict[str, list[Any]] = {
    "name": ["mass2", "total2"],
    "description": ["", "how heavy ", "How heavy"],
    "semantic_id": [None, "load.weight", "mass.load"],
    "unit": [None, "g"],
    "dimension": ["length"],
    "qualifiers": [{}, {"basis": "gross", "site": "a"}, {"basis": "net"}, {"basis": "a", "site": "net"}],
    "identifier": [True],
    "enum": [[], ["a"], ["b", "a"], ["a", "b", "c"]],
    "example": [None, "b", ""],
    "required": [False],
}
OTHER_CAPABILITY: dict[str, list[Any]] = {
    "provider": ["lab"],
    "operation": ["weighs"],
    "description": ["", "weighs a load."],
    "effect": ["write", "destructive"],
    "parameters": [[], CAPABILITY["parameters"][:1], CAPABILITY["parameters"][::-1]],
    "outputs": [[], CAPABILITY["outputs"][1:], CAPABILITY["outputs"][::-1]],
}


def build(data: dict[str, Any]) -> Capability:
    return Capability.model_validate(data)


def fingerprint_of(*data: dict[str, Any]) -> str:
    return Catalog([build(item) for item in data], name="x").fingerprint


def with_field(group: str, name: str, value: Any) -> dict[str, Any]:
    first, *rest = CAPABILITY[group]
    return {**CAPABILITY, group: [{**first, name: value}, *rest]}


@st.composite
def parameters(draw: st.DrawFn, name: str) -> Parameter:
    kind = draw(st.sampled_from(TYPES))
    unit = draw(st.none() | units)
    return Parameter(
        name=name,
        type=kind,
        description=draw(st.sampled_from(["", "how heavy", "Bezeichnung", "하중"])),
        unit=unit,
        dimension="mass" if unit else None,
        enum=tuple(draw(st.lists(words, max_size=3, unique=True))) if kind == "string" else (),
        required=draw(st.booleans()),
    )


plain_names = names.filter(lambda name: "__" not in name and not name.endswith("_"))


@st.composite
def callables(draw: st.DrawFn) -> Capability:
    """A capability with parameters of every type."""
    return Capability(
        provider=draw(plain_names),
        operation=draw(plain_names),
        description=draw(st.text(max_size=20)),
        effect="write",
        parameters=tuple(draw(parameters(name)) for name in draw(st.lists(names, max_size=4, unique=True))),
    )


def test_the_tables_of_changes_name_every_field_of_a_contract() -> None:
    assert set(OTHER_FIELD) | {"type"} == set(Parameter.model_fields)
    assert set(OTHER_FIELD) - {"required"} | {"type"} == set(OutputField.model_fields)
    assert set(OTHER_CAPABILITY) | {"tier"} == set(Capability.model_fields)


@pytest.mark.parametrize("group", ["parameters", "outputs"])
@pytest.mark.parametrize(("name", "value"), [(name, value) for name, others in OTHER_FIELD.items() for value in others])
def test_every_field_of_a_contract_is_in_the_fingerprint(group: str, name: str, value: Any) -> None:
    if group == "outputs" and name == "required":
        with pytest.raises(ValidationError, match="Extra inputs"):
            build(with_field(group, name, value))
        return
    assert fingerprint_of(with_field(group, name, value)) != fingerprint_of(CAPABILITY)


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, others in OTHER_CAPABILITY.items() for value in others]
)
def test_every_field_of_a_capability_but_its_tier_is_in_the_fingerprint(name: str, value: Any) -> None:
    assert fingerprint_of({**CAPABILITY, name: value}) != fingerprint_of(CAPABILITY)
    assert fingerprint_of({**CAPABILITY, "tier": 500}) == fingerprint_of(CAPABILITY)


def test_every_json_type_has_its_own_fingerprint() -> None:
    seen = {fingerprint_of({**CAPABILITY, "outputs": [{"name": "x", "type": kind}]}) for kind in TYPES}
    assert len(seen) == len(TYPES)


@LAWS
@given(items=st.lists(callables(), max_size=5, unique_by=lambda item: item.route_id), data=st.data())
def test_neither_order_nor_name_nor_tier_changes_a_fingerprint(items: list[Capability], data: st.DataObject) -> None:
    catalog = Catalog(items, name="x")
    shuffled = data.draw(st.permutations(items))
    moved = [item.model_copy(update={"tier": data.draw(st.integers(0, 500))}) for item in shuffled]
    assert Catalog(moved, name="y").fingerprint == catalog.fingerprint
    assert catalog.route_ids == tuple(sorted(item.route_id for item in items))
    for item in items:
        assert catalog[item.route_id] == item == catalog.get(item.route_id)
        assert item.route_id in catalog
        rest = [other for other in items if other is not item]
        assert Catalog(rest, name="x").fingerprint != catalog.fingerprint


def test_the_order_of_qualifiers_is_no_part_of_the_contract() -> None:
    assert fingerprint_of(with_field("outputs", "qualifiers", {"site": "a", "basis": "net"})) == fingerprint_of(
        CAPABILITY
    )
    assert build(CAPABILITY).outputs[0].qualifier_atoms == ("basis=net", "site=a")


def test_a_fingerprint_stays_what_it_is() -> None:
    assert fingerprint_of(CAPABILITY) == "98672a29b7316ee26b84ec6b37f131ca13770103c7a9727906bc7e17bc99d4d6"


def test_a_route_given_twice_is_refused_by_name() -> None:
    with pytest.raises(CatalogError, match=r"more than once: fleet\.weigh$"):
        Catalog([build(CAPABILITY), build({**CAPABILITY, "description": "again"})], name="x")


def test_an_unknown_route_is_refused_with_the_closest() -> None:
    catalog = Catalog([build(CAPABILITY)], name="x")
    with pytest.raises(CatalogError, match=r"unknown route 'fleet\.wiegh'\. Did you mean 'fleet\.weigh'"):
        _ = catalog["fleet.wiegh"]
    assert catalog.get("fleet.wiegh") is None
    assert "fleet.wiegh" not in catalog


def test_tiers_are_nested_and_of_exact_size() -> None:
    items = [build({**CAPABILITY, "operation": f"op{i}", "tier": tier}) for i, tier in enumerate([3, 1, 2, 3, 1])]
    catalog = Catalog(items, name="all")
    small, large = Catalog(items[1:2] + items[4:], name="2"), catalog
    assert catalog.tier(5).fingerprint == large.fingerprint
    with pytest.raises(CatalogError, match="catalog 2 was asked for, but 3 capabilities"):
        catalog.tier(2)
    exact = Catalog([item.model_copy(update={"tier": {1: 2, 2: 5, 3: 5}[item.tier]}) for item in items], name="all")
    assert exact.tier(2).route_ids == small.route_ids
    assert exact.tier(2).name == "2"
    assert set(exact.tier(2).route_ids) < set(exact.tier(5).route_ids)


@pytest.mark.parametrize("name", ["", "A", "1a", "a-b", "a b", "a\n", "a.b", "ä", "a" * 65])
def test_names_are_snake_case_words_to_the_last_character(name: str) -> None:
    with pytest.raises(ValidationError):
        OutputField(name=name, type="string")
    with pytest.raises(ValidationError):
        build({**CAPABILITY, "provider": name})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"unit": "kg", "dimension": None}, "has unit 'kg' but no dimension"),
        ({"type": "number"}, "has an enum but is of type number"),
        ({"identifier": "yes"}, "boolean"),
        ({"semantic_id": "mass"}, "pattern"),
        ({"colour": "red"}, "Extra inputs"),
        ({"qualifiers": {"Basis": "net"}}, "pattern"),
        ({"unit": "k\u200bg"}, r"a unit with the invisible character U\+200B"),
        ({"unit": "kg\U000e0041"}, r"a unit with the invisible character U\+E0041"),
        ({"unit": "kg\n"}, r"a unit with the invisible character U\+000A"),
        ({"example": 1}, "field 'mass' is string, but its example is integer"),
        ({"example": ["a"]}, "field 'mass' is string, but its example is array"),
        ({"example": {1}}, "field 'mass' is string, but its example is a Python set"),
        ({"type": "integer", "enum": (), "example": "x"}, "field 'mass' is integer, but its example is string"),
        ({"type": "integer", "enum": (), "example": True}, "field 'mass' is integer, but its example is boolean"),
        ({"type": "null", "enum": (), "example": 0}, "field 'mass' is null, but its example is integer"),
    ],
)
def test_a_contract_that_contradicts_itself_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        OutputField.model_validate({**RICH, **change})


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"name": "invoice_id"}, True),
        ({"name": "invoiceid"}, False),
        ({"identifier": True}, True),
        ({"semantic_id": "invoice.id"}, True),
        ({"semantic_id": "invoice.identifier"}, True),
        ({"semantic_id": "invoice.paid"}, False),
        ({"semantic_id": "id.invoice"}, False),
        ({}, False),
    ],
)
def test_a_field_is_an_identifier_by_name_registration_or_meaning(change: dict[str, Any], expected: bool) -> None:
    assert OutputField.model_validate({"name": "x", "type": "string", **change}).is_identifier is expected


BAD_FIELD = {"name": "Bad", "type": "text", "required": "yes"}


def provider_file(folder: Path, *capabilities: Any, **header: Any) -> Path:
    path = folder / f"{header.get('provider', 'fleet')}.json"
    start = {"provider": "fleet", "title": "Fleet", "about": "Trucks."} | header
    path.write_bytes(orjson.dumps({k: v for k, v in start.items() if v is not None} | {"capabilities": capabilities}))
    return path


def entry(**change: Any) -> dict[str, Any]:
    return {key: value for key, value in CAPABILITY.items() if key != "provider"} | change


def test_a_provider_file_gives_its_capabilities(tmp_path: Path) -> None:
    provider_file(tmp_path, entry(), entry(operation="locate"))
    catalog = load_catalog(tmp_path)
    assert catalog.route_ids == ("fleet.locate", "fleet.weigh")
    assert catalog["fleet.weigh"] == build(CAPABILITY)


def test_all_mistakes_of_all_capabilities_of_all_files_are_reported_at_once_with_their_location(tmp_path: Path) -> None:
    provider_file(
        tmp_path,
        entry(effect="delete", colour="red"),
        entry(operation="locate", parameters=[{"name": "a", "type": "string", "required": True}, BAD_FIELD]),
        {"description": "no name"},
    )
    provider_file(tmp_path, entry(outputs=[{"name": "x", "type": "string", "unit": "kg"}]), provider="lab")
    (tmp_path / "torn.json").write_text('{"provider": ')
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "folder.json").mkdir()
    provider_file(tmp_path, entry(), provider="fine")
    with pytest.raises(CatalogError) as caught:
        load_catalog(tmp_path)
    said = str(caught.value)
    for location in (
        "fleet.json: ",
        "weigh.effect: ",
        "weigh.colour: ",
        "locate.parameters.1.name: ",
        "locate.parameters.1.type: ",
        "locate.parameters.1.required: ",
        "#2.operation: ",
        "#2.effect: ",
        "lab.json: weigh.outputs.0: ",
        "torn.json: half-written or not JSON",
        "list.json: file: ",
        "folder.json: cannot be read",
    ):
        assert location in said
    assert "fine.json" not in said
    assert "got 'delete'" in said


@pytest.mark.parametrize(
    ("header", "location"),
    [
        ({"title": None}, "title: "),
        ({"provider": "Fleet"}, "provider: "),
        ({"provider": "a__b"}, "provider: "),
        ({"owner": "x"}, "owner: "),
        ({"about": 5}, "about: "),
    ],
)
def test_a_wrong_header_is_reported_with_its_location(tmp_path: Path, header: dict[str, Any], location: str) -> None:
    path = provider_file(tmp_path, entry(), **header)
    with pytest.raises(CatalogError) as caught:
        load_catalog(tmp_path)
    assert f"{path.name}: {location}" in str(caught.value)
    assert str(caught.value).count("provider: ") == location.count("provider: ")


@pytest.mark.parametrize(
    ("header", "capabilities", "said"),
    [
        ({"title": None}, [entry(effect="delete")], ["title: ", "weigh.effect: "]),
        (
            {},
            [entry(outputs=[{"name": "x", "type": "number", "unit": "kg", "enum": ["a"]}])],
            ["no dimension", "has an enum"],
        ),
        (
            {},
            [entry(outputs=[RICH, RICH], parameters=[CAPABILITY["parameters"][0]] * 2)],
            ["parameter names", "output names"],
        ),
        ({}, [entry(), entry(operation="locate", effect="delete"), entry()], ["locate.effect: ", "fleet.weigh"]),
    ],
    ids=["header-and-capability", "unit-and-enum", "parameters-and-outputs", "route-twice"],
)
def test_mistakes_of_different_kinds_are_reported_at_once(
    tmp_path: Path, header: dict[str, Any], capabilities: list[dict[str, Any]], said: list[str]
) -> None:
    path = provider_file(tmp_path, *capabilities, **header)
    with pytest.raises(CatalogError) as caught:
        load_catalog(path.parent)
    assert [part for part in said if part not in str(caught.value)] == []


def test_a_copy_under_another_name_has_its_own_route_and_is_checked() -> None:
    item = build(CAPABILITY)
    assert item.route_id == "fleet.weigh"
    assert item.model_copy(update={"operation": "locate"}).route_id == "fleet.locate"
    assert item.model_copy() == item
    with pytest.raises(ValidationError, match="operation"):
        item.model_copy(update={"operation": "No Name"})


def test_what_was_fingerprinted_cannot_be_changed() -> None:
    field = OutputField(name="mass", type="number", qualifiers={"kind": "net"})
    for change in (
        lambda: field.qualifiers.update(kind="gross"),
        lambda: field.qualifiers.__setitem__("kind", "gross"),
        lambda: field.qualifiers.pop("kind"),
        field.qualifiers.clear,
    ):
        with pytest.raises(TypeError, match="does not change"):
            change()
    item = build(CAPABILITY)
    item.tool_schema["function"]["name"] = "other"
    assert item.tool_schema["function"]["name"] == "fleet__weigh"


def test_a_catalog_goes_to_another_process_and_back_unchanged() -> None:
    catalog = Catalog([build(CAPABILITY)], name="one")
    for made in (pickle.loads(pickle.dumps(catalog)), copy.deepcopy(catalog)):
        assert made.fingerprint == catalog.fingerprint
        qualifiers = made.capabilities[0].outputs[0].qualifiers
        assert qualifiers == RICH["qualifiers"]
        with pytest.raises(TypeError, match="does not change"):
            qualifiers["more"] = "still"
