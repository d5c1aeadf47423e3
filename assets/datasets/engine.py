"""The engine of a build: the processors of its own machine, or the cluster of Dask that the platform's settings name.

It decides where documents are read, cleaned and encoded, and no byte of what is made.
"""

from contextlib import AbstractContextManager
from pathlib import Path

from slipway.assets.datasets.building import workers
from slipway.assets.datasets.building.build_log import BuildLog
from slipway.recipes.dataset import DatasetRecipe
from slipway.resources import platform
from slipway.resources.platform import DaskSettings


def engine(recipe: DatasetRecipe, report: BuildLog) -> AbstractContextManager[None]:
    """Within it, the dataset is built by the engine that its recipe names, or else by the platform's.

    Raises ValueError for a recipe that names Dask where the platform's settings have none.
    """
    if recipe.engine == "local":
        return workers.on(None)
    settings: DaskSettings | None = platform.dask_here()
    if settings is not None:
        # Imported here, because every process of Dagster loads this module and few platforms have a cluster of Dask.
        from slipway.assets.datasets.building.dask_cluster import DaskCluster

        return workers.on(DaskCluster(settings.scheduler, Path(settings.certificates), report))
    if recipe.engine == "dask":
        raise ValueError(
            f"dataset {recipe.name}: engine: found dask, expected local, or a section compute.dask in the platform's "
            "settings (SLIPWAY_PLATFORM)"
        )
    return workers.on(None)
