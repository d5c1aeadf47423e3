"""Trainings that wait: they want more nodes than the fleet has, and so does the run that shows each of them wait."""

from collections.abc import Iterator
from contextlib import contextmanager

from slipway.assets import keys
from slipway.assets.datasets.snapshots import pointer
from slipway.assets.training import run_policy, specification
from slipway.recipes.assignments import applied
from slipway.resources.trainings.store import TrainingStore, all_trainings
from tests.drills import small_recipes
from tests.drills.instance import Instance
from tests.drills.process_table import wait_until

MORE_NODES = ["placement.nodes={min: 3, max: 3}"]
PATIENCE_SECONDS = 600.0


@contextmanager
def waiting(instance: Instance, *causes: str) -> Iterator[list[TrainingStore]]:
    """A training that waits for nodes for each of these causes; afterwards they are stopped."""
    current = pointer.current(instance.home.durable, small_recipes.DATASET)
    assert current is not None
    recipe = applied(instance.recipes.trainings[small_recipes.ALONE], MORE_NODES)
    agreed, root = run_policy(recipe, fields=MORE_NODES), all_trainings(instance.tiers)
    stores = [root.propose(specification(recipe, current, instance.tiers, cause), agreed) for cause in causes]
    try:
        instance.storage.add_dynamic_partitions(
            str(keys.training_partitions(small_recipes.ALONE).name), [store.id for store in stores]
        )
        for store in stores:
            root.start(store, "drill", "to wait")
        yield stores
    finally:
        for store in stores:
            store.want("stop", "drill", "it is over")
        wait_until(
            lambda: not {store.id for store in stores} & set(instance.open_trainings()),
            "all are stopped",
            PATIENCE_SECONDS,
        )
