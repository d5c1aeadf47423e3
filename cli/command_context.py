"""Where the command works: on the embedded instance of a home, or on the cluster that SLIPWAY_PLATFORM describes.

On a home the training stores, the launcher and the fleet are opened without importing Dagster, so that the verbs that
people use all day answer at once.
"""

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dagster import DagsterInstance

    from slipway.resources.compute.protocol import Compute
    from slipway.resources.cost_settings import CostSettings
    from slipway.resources.fleet.health.node_health import NodeHealth
    from slipway.resources.fleet.protocol import Fleet
    from slipway.resources.home import Home
    from slipway.resources.launchers.protocol import Launcher
    from slipway.resources.mlflow.tracking import Tracking
    from slipway.resources.notify.settings import NotificationSettings
    from slipway.resources.platform import Platform
    from slipway.resources.resource_sets import Resources
    from slipway.resources.tiers import Tiers
    from slipway.resources.trainings.accounts import Prices
    from slipway.resources.trainings.control import TrainingControl
    from slipway.resources.trainings.quotas import Quotas
    from slipway.resources.trainings.store import Trainings, TrainingStore

PLATFORM = "SLIPWAY_PLATFORM"


@dataclass(frozen=True)
class CommandContext:
    """An embedded instance (`home`), or a cluster (the file of its settings)."""

    home: "Home | None"
    file: Path | None = None

    def embedded(self, why: str) -> "Home":
        """The home. Raises ValueError on a cluster, with the reason why the verb is not for one."""
        if self.home is None:
            raise ValueError(f"{PLATFORM}={self.file}: found a cluster, expected an embedded instance: {why}")
        return self.home

    def cluster(self, why: str) -> "Platform":
        """The settings of the cluster. Raises ValueError on an embedded instance, with the reason."""
        if self.home is not None:
            raise ValueError(f"{PLATFORM}: found nothing, expected the file of a cluster's settings: {why}")
        return self._settings

    @functools.cached_property
    def _settings(self) -> "Platform":
        from slipway.resources import platform, state

        assert self.file is not None
        settings = platform.load(self.file)
        state.refuse_newer(Path(settings.tiers.durable))  # type: ignore[attr-defined]
        return settings

    @property
    def durable(self) -> Path:
        """The durable tier."""
        return self.home.durable if self.home else Path(self._settings.tiers.durable)  # type: ignore[attr-defined]

    @property
    def cost_settings(self) -> Path:
        """The file in which prices and quotas stand."""
        from slipway.resources import cost_settings

        return self.home.root / cost_settings.FILE if self.home else self.file  # type: ignore[return-value]

    @functools.cached_property
    def _costs(self) -> "CostSettings":
        from slipway.resources import cost_settings

        return cost_settings.of_home(self.home.root) if self.home else self._settings

    @property
    def prices(self) -> "Prices | None":
        """What a rank-hour costs; None where the settings do not say."""
        return self._costs.rank_prices

    @property
    def quotas(self) -> "Quotas":
        """How much each team may use, and has used; nobody has a quota where the settings do not say."""
        from slipway.resources.trainings.quotas import Quotas

        return Quotas(self.durable, self._costs.quotas)

    @property
    def notifications(self) -> "NotificationSettings":
        """Whom to tell. Raises ValueError where nobody is."""
        from slipway.resources.notify import settings

        notification_settings = settings.of_home(self.home.root) if self.home else self._settings.notifications
        if notification_settings is None:
            where = f"{self.home.root / settings.FILE}" if self.home else f"{self.file}, notifications"
            raise ValueError(f"{where}: found nothing, expected the settings of notifications (docs/notifications.md)")
        return notification_settings

    @functools.cached_property
    def resources(self) -> "Resources":
        """The resources, as the definitions have them."""
        from slipway.resources import resource_sets

        return (
            resource_sets.embedded_resources(self.home)
            if self.home
            else resource_sets.cluster_resources(self._settings)
        )

    @property
    def tiers(self) -> "Tiers":
        return self.resources["tiers"]  # type: ignore[return-value]

    @property
    def compute(self) -> "Compute":
        return self.resources["compute"]  # type: ignore[return-value]

    @property
    def tracking(self) -> "Tracking":
        return self.resources["tracking"]  # type: ignore[return-value]

    @functools.cached_property
    def launcher(self) -> "Launcher":
        """What runs the jobs."""
        if self.home is None:
            return self.compute.launcher()
        from slipway.resources import embedded

        return embedded.launcher(self.home)

    @functools.cached_property
    def fleet(self) -> "Fleet":
        """The nodes."""
        if self.home is None:
            return self.compute.fleet()
        from slipway.resources import embedded

        return embedded.fleet(self.home)

    @functools.cached_property
    def node_health(self) -> "NodeHealth":
        """The one door to the standings of the nodes."""
        if self.home is None:
            return self.compute.node_health(self.tiers)
        from slipway.resources import embedded

        return embedded.node_health(self.home)

    @functools.cached_property
    def control(self) -> "TrainingControl":
        """What brings trainings to where they should be."""
        return self.compute.control(self.tiers)

    @contextlib.contextmanager
    def dagster(self) -> "Iterator[DagsterInstance]":
        """Dagster's storage, for what is materialised from here. Raises ValueError where a cluster's is not set up."""
        if self.home is not None:
            from slipway.deploy.embedded import instance
            from slipway.operations.upgrade import upgrading

            instance.prepare(self.home)
            upgrading.ready(self.home.durable)
        with self.storage() as storage:
            yield storage

    @contextlib.contextmanager
    def storage(self) -> "Iterator[DagsterInstance]":
        """As `dagster`, of a home that is as it is: for an upgrade."""
        from dagster import DagsterInstance

        from slipway.deploy.embedded.instance import open_storage

        if self.home is None and not os.environ.get("DAGSTER_HOME"):
            raise ValueError("DAGSTER_HOME: found nothing, expected the folder of the platform's Dagster settings")
        with open_storage(self.home) if self.home else DagsterInstance.get() as storage:
            yield storage

    @property
    def trainings(self) -> "Trainings":
        from slipway.resources.trainings.store import Trainings

        return Trainings(self.durable / "trainings")

    def stores(self, trials: bool = True) -> "dict[str, TrainingStore]":
        """All trainings ever proposed, by id, and the sweeps' trials."""
        from slipway.resources.trainings.store import trials_below

        collections = [self.trainings, *(trials_below(self.durable).values() if trials else ())]
        return {store.id: store for root in collections for store in root.stores()}

    def training(
        self, name: str, fits: "Callable[[TrainingStore], bool] | None" = None, what: str = "training"
    ) -> "TrainingStore":
        """The training or trial that a name means: in full any, cut short one that `fits`, which are called `what`.

        One whose records cannot be read fits nothing, and does not stand in the way of the others. Raises ValueError.
        """
        from slipway.cli import names

        known = self.stores()
        if name in known:
            return known[name]
        close = [id for id, store in known.items() if id.startswith(name) and _fits(store, fits)]
        among = close or [id for id, store in known.items() if _fits(store, fits)]
        return known[names.resolved(name, among, what)]


def current(environ: Mapping[str, str] = os.environ) -> CommandContext:
    """The place that the environment describes. Raises ValueError when the home is a file, or of a newer release."""
    from slipway.resources import state
    from slipway.resources.home import Home

    if environ.get(PLATFORM):
        return CommandContext(None, Path(environ[PLATFORM]))
    home = Home.of(environ)
    if home.root.exists() and not home.root.is_dir():
        raise ValueError(f"SLIPWAY_HOME {home.root}: found a file, expected a folder, or nothing yet")
    state.refuse_newer(home.durable)
    return CommandContext(home)


def _fits(store: "TrainingStore", fits: "Callable[[TrainingStore], bool] | None") -> bool:
    try:
        return fits is None or fits(store)
    except (ValueError, OSError):
        return False


def actor(changes: bool = True) -> str:
    """Who gives the command, for what is recorded of it.

    Raises ValueError for one who may only look, unless the command `changes` nothing.
    """
    from slipway.resources import identity

    asker = identity.of_process()
    if changes and os.environ.get(PLATFORM):
        from slipway.resources import access

        if refusal := access.of_settings(os.environ).refusal(asker.person):
            raise ValueError(f"{os.environ[PLATFORM]}: operators: {refusal}")
    return asker
