"""Resources without run configuration, so that nobody can edit them in the launchpad.

Dagster's launchpad offers all fields of every ConfigurableResource, so that a person could move the durable tier for
one run. These resources have no fields there; their set-up and tear-down in a run stay the same.
"""

from collections.abc import Iterator, Mapping

import dagster as dg


def without_run_config(
    resources: Mapping[str, dg.ConfigurableResource],  # type: ignore[type-arg]
) -> dict[str, dg.ResourceDefinition]:
    """The resources by name, without fields in a run's configuration."""
    return {name: _without_run_config(resource) for name, resource in resources.items()}


def _without_run_config(resource: dg.ConfigurableResource) -> dg.ResourceDefinition:  # type: ignore[type-arg]
    def without_config(context: dg.InitResourceContext) -> Iterator[object]:
        with resource.model_copy().yield_for_execution(context) as ready:
            yield ready

    return dg.ResourceDefinition(without_config, description=(type(resource).__doc__ or "").strip().partition("\n")[0])
