"""Resources without run configuration: as the instance was set up, and not for a person to edit in a launchpad.

A ConfigurableResource of Dagster's is offered in every launchpad with all its fields, so that a person could move the
durable tier for one run. Here it has no fields there; what it does before and after a run stays.
"""

from collections.abc import Iterator, Mapping

import dagster as dg


def without_run_config(
    resources: Mapping[str, dg.ConfigurableResource],  # type: ignore[type-arg]
) -> dict[str, dg.ResourceDefinition]:
    """The resources by their names, without a configuration of their own in a run."""
    return {name: _without_run_config(resource) for name, resource in resources.items()}


def _without_run_config(resource: dg.ConfigurableResource) -> dg.ResourceDefinition:  # type: ignore[type-arg]
    def without_config(context: dg.InitResourceContext) -> Iterator[object]:
        with resource.model_copy().yield_for_execution(context) as ready:
            yield ready

    return dg.ResourceDefinition(without_config, description=(type(resource).__doc__ or "").strip().partition("\n")[0])
