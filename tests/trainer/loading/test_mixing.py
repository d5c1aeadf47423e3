"""Mixing: what a mix reads of a mixture, and the mixes that do not fit it; no file is opened."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from slipway.trainer.base import codec
from slipway.trainer.config.mix import Mix
from slipway.trainer.config.sections import Batch, Run, Validation
from slipway.trainer.data import mixtures, snapshots
from slipway.trainer.data.mixtures import MixtureSnapshot
from slipway.trainer.loading.needs import SnapshotReading
from slipway.trainer.loading.order import Order
from tests.trainer.test_mixes import make_mixture, snapshot_of


@pytest.fixture
def mixture(tmp_path: Path) -> MixtureSnapshot:
    return make_mixture(tmp_path)


def reading(snapshot: Any, mix: dict[str, Any] | None, length: int = 32, **validation: int) -> SnapshotReading:
    built = codec.build(Mix, mix) if mix else None
    batch = Batch(sequences=7, length=length, micro=1)
    return SnapshotReading(snapshot, batch, Run(steps=20, seed=3), Validation(**validation), mix=built)


def test_a_mixture_is_read_as_it_was_written(mixture: MixtureSnapshot, tmp_path: Path) -> None:
    assert snapshots.read(tmp_path, mixture.sha256) == mixture


def test_a_mixture_is_the_same_whatever_order_its_datasets_come_in(tmp_path: Path) -> None:
    web, code = snapshot_of(tmp_path, "web", 1, 500), snapshot_of(tmp_path, "code", 2, 600)
    assert mixtures.mixture({"web": web, "code": code}).sha256 == mixtures.mixture({"code": code, "web": web}).sha256


def test_datasets_with_different_tokenizers_are_refused_with_both_names(tmp_path: Path) -> None:
    sources = {
        name: snapshot_of(tmp_path, name, 1, 500, tokenizer=tokenizer)
        for name, tokenizer in (("web", "a"), ("code", "b"))
    }
    with pytest.raises(ValueError, match="datasets code and web: found two tokenizers"):
        mixtures.mixture(sources)


def test_a_training_on_one_dataset_reads_it_in_the_order_that_it_always_had(tmp_path: Path) -> None:
    snapshot = snapshot_of(tmp_path, "web", 1, 1500, 700, 333)
    data_reading = reading(snapshot, None)
    assert data_reading.order.samples(0, 100).tolist() == Order([46, 21, 10], 3, 64).samples(0, 100).tolist()
    assert data_reading.order.samples(0, 8).tolist() == [25, 7, 24, 8, 49, 13, 68, 6]
    assert data_reading.measured["web"].tolist() == list(range(9))


def test_validation_measures_equally_many_samples_of_each_dataset(mixture: MixtureSnapshot) -> None:
    """Whatever the weights, so that mixes compare; of a small dataset all that it has."""
    data_reading = reading(mixture, {"weights": {"web": 9, "code": 1}}, every=5, sequences=6)
    assert {name: numbers.tolist() for name, numbers in data_reading.measured.items()} == {
        "code": [0, 1, 2],
        "web": [9, 10, 11],
    }
    assert [shard.blake3 for shard in data_reading.pinned] == [
        shard.blake3 for shard in mixture.splits["validation"].shards
    ]


@pytest.mark.parametrize(
    ("mix", "expected"),
    [
        ({"weights": {"web": 1, "books": 1}}, "mix: found books, expected the datasets of the mixture: code, web"),
        (None, "mix: found none, expected weights for code, web"),
        (
            {"weights": {"web": 1, "code": 1}, "passes_at_most": 3},
            "mix.passes_at_most: found a training that reads code 3.89 times, expected 3 times at most",
        ),
    ],
)
def test_a_mix_that_does_not_fit_the_mixture_is_refused(
    mixture: MixtureSnapshot, mix: dict[str, Any] | None, expected: str
) -> None:
    with pytest.raises(ValueError, match=expected):
        reading(mixture, mix).course  # noqa: B018


def test_a_dataset_without_one_sequence_of_the_length_is_refused_by_name(mixture: MixtureSnapshot) -> None:
    with pytest.raises(ValueError, match="dataset code: split train has no sequence of 700 tokens"):
        reading(mixture, {"weights": {"web": 1, "code": 1}}, length=700).course  # noqa: B018


def test_a_mix_for_a_snapshot_that_is_no_mixture_is_refused(mixture: MixtureSnapshot, tmp_path: Path) -> None:
    alone = snapshots.read(tmp_path, mixture.sources[0].snapshot)
    with pytest.raises(ValueError, match="expected none: it is no mixture"):
        reading(alone, {"weights": {"web": 1, "code": 1}}).course  # noqa: B018


def test_what_a_mixture_needs_of_a_disk_is_what_its_datasets_hold(mixture: MixtureSnapshot) -> None:
    need = reading(mixture, {"weights": {"web": 1, "code": 1}}).need
    every = [shard for split in mixture.splits.values() for shard in split.shards]
    assert need.total == sum(shard.bytes for shard in every)
    assert need.window <= need.divided == sum(shard.bytes for shard in mixture.splits["train"].shards)


def test_a_mixture_says_where_each_dataset_has_its_shards(mixture: MixtureSnapshot) -> None:
    assert mixture.ranges("train") == {"code": range(0, 1), "web": range(1, 4)}
    assert dataclasses.asdict(mixture)["dataset"] == "code+web"
