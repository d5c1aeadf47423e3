"""Tests write a small corpus and build it at once, so no build waits until its files are settled."""

import pytest

from slipway.assets.datasets.reading import sources
from tests.assets.datasets.corpora import make_corpus


@pytest.fixture(autouse=True)
def _settled(monkeypatch):
    monkeypatch.setattr(sources, "SETTLED_SECONDS", -1.0)


@pytest.fixture
def corpus(tmp_path):
    return make_corpus(tmp_path / "corpus")


@pytest.fixture
def durable(tmp_path):
    return tmp_path / "durable"
