"""A training on a mixture, as real processes: the mix decides what is read, and neither ranks nor kills change it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slipway.trainer import evaluate
from slipway.trainer.data import mixtures, shards
from slipway.trainer.data.mixtures import MixtureSnapshot
from tests.trainer.conftest import EVERY, LENGTH, STEPS, VOCAB, Training, read_json
from tests.trainer.test_ranks import close

MIX: dict[str, Any] = {
    "weights": {"web": 3, "code": 1},
    "phases": [{"after_step": 8, "weights": {"web": 1, "code": 1}}, {"after_step": 15, "weights": {"code": 1}}],
}


def snapshot_of(durable: Path, dataset: str, seed: int, *lengths: int, tokenizer: str = "0") -> shards.TextSnapshot:
    """Random tokens in shards of these lengths, and a validation split."""
    draws = np.random.default_rng(seed)

    def split(*lengths: int) -> shards.TokenSplit:
        texts = [draws.integers(0, VOCAB - 1, length) for length in lengths]
        written = tuple(shards.write_shard(durable, [text], "uint16") for text in texts)
        return shards.TokenSplit(len(lengths), sum(lengths), 3 * sum(lengths), written)

    snapshot = shards.TextSnapshot(
        dataset=dataset,
        recipe="0" * 64,
        source={"kind": "random"},
        documents={"blake3": "0" * 64},
        tokenizer=shards.TokenizerRecord(tokenizer * 64, VOCAB, VOCAB - 1),
        dtype="uint16",
        splits={"train": split(*lengths), "validation": split(300)},
    )
    shards.write_manifest(durable, snapshot)
    return snapshot


def make_mixture(durable: Path) -> MixtureSnapshot:
    """A large dataset of three shards, and one so small that it is repeated."""
    sources = {"web": snapshot_of(durable, "web", 1, 1500, 700, 333), "code": snapshot_of(durable, "code", 2, 600)}
    mixture_snapshot = mixtures.mixture(sources)
    shards.write_manifest(durable, mixture_snapshot)
    return mixture_snapshot


def mixed(folder: Path, mark: str, mix: dict[str, Any] = MIX) -> Training:
    return Training(folder, mark, make_mixture, mix=mix)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory, mark: str) -> Training:
    """By two ranks, never interrupted."""
    return mixed(tmp_path_factory.mktemp("whole"), mark).completed(ranks=2)


@pytest.mark.slow
def test_a_killed_training_ends_bit_for_bit_as_one_that_is_not(
    uninterrupted: Training, tmp_path: Path, mark: str
) -> None:
    killed = mixed(tmp_path, mark).interrupted(12, ranks=2).completed(ranks=2)
    assert [event["step"] for event in killed.events("restored")] == [10]
    assert killed.losses() == uninterrupted.losses()
    assert killed.tensors_by_name() == uninterrupted.tensors_by_name()
    assert killed.events("mixed")[-1]["datasets"] == uninterrupted.events("mixed")[-1]["datasets"]


@pytest.mark.slow
def test_the_ledger_has_the_tokens_of_each_dataset_and_how_often_it_was_read(uninterrupted: Training) -> None:
    mixed = {event["step"]: event["datasets"] for event in uninterrupted.events("mixed")}
    assert list(mixed) == [0, EVERY, 10, 15, STEPS]
    # 8 steps of 7 sequences at 3 to 1, then 7 steps at 1 to 1, then 5 steps of code alone.
    web, code = 8 * 7 * 3 // 4 + 25, 8 * 7 // 4 + 24 + 5 * 7
    assert mixed[STEPS]["web"]["tokens"] == pytest.approx(web * LENGTH, abs=LENGTH)
    assert mixed[STEPS]["code"]["tokens"] == pytest.approx(code * LENGTH, abs=LENGTH)
    assert sum(dataset["tokens"] for dataset in mixed[STEPS].values()) == STEPS * 7 * LENGTH
    assert mixed[STEPS]["code"]["passes"] == mixed[STEPS]["code"]["tokens"] / LENGTH / (599 // LENGTH)


@pytest.mark.slow
def test_losses_are_held_against_those_since_the_mix_changed(uninterrupted: Training) -> None:
    """Those of other data say nothing about a spike: a checkpoint keeps the losses that do."""
    losses = dict(uninterrupted.losses())
    for step, first in ((EVERY, 1), (10, 9), (15, 9), (STEPS, 16)):
        losses_in_checkpoint = read_json(uninterrupted.checkpoint_file("progress.json", step))["losses"]
        assert losses_in_checkpoint == [losses[number] for number in range(first, step + 1)]


@pytest.mark.slow
def test_validation_has_the_loss_of_each_dataset(uninterrupted: Training) -> None:
    last = uninterrupted.events("validated")[-1]
    assert set(last["by_dataset"]) == {"web", "code"}
    assert min(last["by_dataset"].values()) < last["loss"] < max(last["by_dataset"].values())


@pytest.mark.slow
def test_a_checkpoint_is_measured_on_the_validation_split_of_each_dataset(uninterrupted: Training) -> None:
    last = uninterrupted.commits()[-1]
    entry = {"name": last.name, "folder": last.folder, "manifest": last.manifest}
    paths = {"tier": str(uninterrupted.durable), "durable": str(uninterrupted.durable)}
    named = {**paths, "snapshot": uninterrupted.snapshot.sha256, "split": "validation", "checkpoints": [entry]}
    [score] = evaluate.evaluate(named)
    assert score.tokens == 2 * 299
    assert set(score.by_dataset) == {"code", "web"}
    assert sum(score.by_dataset.values()) / 2 == pytest.approx(score.loss)  # both have as many tokens


@pytest.mark.nightly
@pytest.mark.parametrize("ranks", [1, 4])
def test_one_and_four_ranks_have_the_losses_of_two(
    uninterrupted: Training, tmp_path: Path, mark: str, ranks: int
) -> None:
    close(mixed(tmp_path, mark).completed(ranks=ranks).losses(), uninterrupted.losses())
