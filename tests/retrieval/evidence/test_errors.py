"""What an error class calls for."""

from __future__ import annotations

import pytest
from hypothesis import given

from schemarouter.retrieval.evidence.errors import corrective_stems, error_stems, is_transient
from schemarouter.retrieval.evidence.words import stem
from surface.loader import load_surface
from tests.strategies import LAWS, names

TRANSIENT = ["upstream_timeout", "service_busy", "gateway_unavailable", "rate_limited", "temporarily_overloaded"]
LASTING = ["lease_expired", "record_locked", "quota_exceeded", "unit_mismatch", "access_denied", "unclassified"]


@pytest.mark.parametrize("error_class", TRANSIENT)
def test_transient_classes_call_for_the_same_call_again(error_class: str) -> None:
    assert is_transient(error_class)


@pytest.mark.parametrize("error_class", LASTING)
def test_lasting_classes_do_not(error_class: str) -> None:
    assert not is_transient(error_class)


@pytest.mark.parametrize(
    ("error_class", "verb"),
    [
        ("lease_expired", "renew"),
        ("record_locked", "unlock"),
        ("quota_exceeded", "raise"),
        ("unit_mismatch", "convert"),
        ("access_denied", "grant"),
        ("consent_missing", "record"),
    ],
)
def test_a_lasting_class_names_its_corrective_action(error_class: str, verb: str) -> None:
    assert corrective_stems(error_class)[stem(verb)] == 1.0


def test_a_class_that_says_nothing_known_has_no_corrective_action() -> None:
    assert corrective_stems("unclassified") == corrective_stems("") == corrective_stems("zebra_quux") == {}


def test_forms_of_a_word_are_one_word() -> None:
    assert corrective_stems("locks") == corrective_stems("lock")
    assert is_transient("timeouts")


def test_the_words_of_a_class_are_its_stems() -> None:
    assert error_stems("lease_expired") == {"leas": 1.0, stem("expired"): 1.0}
    assert error_stems("__") == error_stems("") == {}


@LAWS
@given(error_class=names)
def test_any_name_of_the_state_contract_is_answered(error_class: str) -> None:
    assert isinstance(is_transient(error_class), bool)
    for stems in (error_stems(error_class), corrective_stems(error_class)):
        assert set(stems.values()) <= {1.0}
        assert "" not in stems


def test_faults_of_the_development_surface_are_transient_exactly_when_they_have_no_corrective_action() -> None:
    for task in load_surface("development").tasks:
        for fault in task.key.faults:
            assert is_transient(fault.error.partition(":")[0]) == (not fault.cured_by), fault.error
