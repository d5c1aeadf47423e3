"""Small corpora are written and built within one moment here, so no build waits for them to be still."""

import pytest

from assets.datasets import sources
from tests.data.corpora import make_corpus


@pytest.fixture(autouse=True)
def _still(monkeypatch):
    monkeypatch.setattr(sources, "SETTLED_SECONDS", -1.0)


@pytest.fixture
def corpus(tmp_path):
    return make_corpus(tmp_path / "corpus")


@pytest.fixture
def durable(tmp_path):
    return tmp_path / "durable"
