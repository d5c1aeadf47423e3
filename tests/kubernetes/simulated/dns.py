"""The names of pods and services in the cluster's DNS: here all of them are this machine.

A name is only known while its Service is there, so that a pod which asks for another one finds nothing, as it would.
"""

import re
import socket
from collections.abc import Iterable

HOME = "127.0.0.1"
RENDEZVOUS = "29500"
"""The port on which the ranks of a job meet. Pods share one machine here, so each job gets its own port."""


class Ports:
    """A free port for each job, known by namespace and Service."""

    def __init__(self) -> None:
        self._ports: dict[tuple[str, str], str] = {}

    def of(self, namespace: str, service: str) -> str:
        if (namespace, service) not in self._ports:
            with socket.socket() as listener:
                listener.bind((HOME, 0))
                self._ports[namespace, service] = str(listener.getsockname()[1])
        return self._ports[namespace, service]


def resolved(text: str, namespace: str, services: Iterable[str], port: str, is_address: bool = False) -> str:
    """The text with the names of pods behind the services, and the port that goes with them, replaced.

    The bare name of a service is only taken for one before a port, or where the whole text is an address.
    """
    for service in services:
        domain = rf"(?:\.{re.escape(namespace)}(?:\.svc(?:\.cluster\.local)?)?)?"
        name = rf"(?<![\w./-])[a-z0-9-]+\.{re.escape(service)}{domain}(?![\w./-])"
        bare = rf"(?<![\w./-]){re.escape(service)}{domain}(?=:{RENDEZVOUS}\b)"
        text = re.sub(bare, HOME, re.sub(name, HOME, text))
        if is_address and re.fullmatch(rf"{re.escape(service)}{domain}", text):
            text = HOME
    return re.sub(rf"(?<={HOME}:){RENDEZVOUS}\b", port, text)
