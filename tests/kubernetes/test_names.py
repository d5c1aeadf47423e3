"""Names that Kubernetes accepts: readable, deterministic, and no two the same."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipway.resources.launchers.kubernetes.names import label_value, object_name

pytestmark = pytest.mark.pure

RFC_1035 = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
LABEL = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?")
TEXT = st.text() | st.text("abAB01-._/", max_size=70)


@pytest.mark.parametrize("name", ["a", "llama-70b-2", "x" * 40])
def test_a_name_that_fits_stays_as_it_is(name: str):
    assert object_name(name) == name


@pytest.mark.parametrize(
    ("name", "readable"),
    [
        ("Llama_70B.v2", "llama-70b-v2--"),
        ("2026-run", "run--"),
        ("x" * 41, "x" * 26 + "--"),
        ("café/ünïcode", "caf-n-code--"),
        ("a--b", "a-b--"),
        ("ends-", "ends--"),
        ("...", "x--"),
        ("", "x--"),
    ],
)
def test_another_name_keeps_its_fitting_characters_and_gets_a_hash(name: str, readable: str):
    assert re.fullmatch(re.escape(readable) + "[a-z2-7]{12}", object_name(name))


@given(TEXT)
def test_kubernetes_accepts_every_name_also_for_the_objects_named_after_it(name: str):
    kubernetes_name = object_name(name)
    assert RFC_1035.fullmatch(kubernetes_name) and len(kubernetes_name) <= 40
    assert (
        RFC_1035.fullmatch(f"{kubernetes_name}-node-0-99999-abcde")
        and len(f"{kubernetes_name}-node-0-99999-abcde") <= 63
    )


@given(st.lists(TEXT, unique=True, max_size=20))
def test_no_two_names_become_one(names: list[str]):
    assert len({object_name(name) for name in names}) == len({label_value(name) for name in names}) == len(names)


@given(TEXT)
def test_no_name_is_the_one_that_another_was_mapped_to(name: str):
    for mapping in (object_name, label_value):
        if (mapped := mapping(name)) != name:
            assert mapping(mapped) != mapped


@given(TEXT)
def test_kubernetes_accepts_every_label_value(text: str):
    value = label_value(text)
    assert LABEL.fullmatch(value) and len(value) <= 63


@pytest.mark.parametrize("text", ["", "8f14e45f-ceea-467f-a9d4-2c5e1a7b3d10", "Team_A.1"])
def test_a_label_value_that_fits_stays_as_it_is(text: str):
    assert label_value(text) == text


def test_names_do_not_change_between_revisions():
    assert object_name("Llama_70B") == "llama-70b--cereemcduwb5"
    assert label_value("of all/things") == "of-all-things--nfgmtui4m3xl"
