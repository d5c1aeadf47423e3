"""The common part of all nodes: the images, the network and the events."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.kubernetes.simulated import statuses
from tests.kubernetes.simulated.dns import Ports
from tests.kubernetes.simulated.events import Events
from tests.kubernetes.simulated.kinds import Object
from tests.kubernetes.simulated.store import Store


@dataclass
class Machine:
    store: Store
    events: Events
    ports: Ports = field(default_factory=Ports)
    missing_images: set[str] = field(default_factory=set)
    """Images that exist nowhere; remove one from the set to make it available."""

    def absences(self, image: str, policy: str) -> Iterator[tuple[Object, str, str]]:
        """While the image is missing: the container's state, and reason and message of an event."""
        attempts = 0
        while image in self.missing_images:
            if policy == "Never":
                why = f'Container image "{image}" is not present with pull policy of Never'
                yield statuses.waiting("ErrImageNeverPull", why), "ErrImageNeverPull", why
            elif attempts % 2 == 0:
                why = f'failed to pull and unpack image "{image}": failed to resolve reference "{image}": not found'
                yield statuses.waiting("ErrImagePull", why), "Failed", f'Failed to pull image "{image}": {why}'
            else:
                why = f'Back-off pulling image "{image}"'
                yield statuses.waiting("ImagePullBackOff", why), "BackOff", why
            attempts += 1
