"""One pod on its node: its volumes, its images, its containers one after the other, and its end."""

import asyncio
import contextlib
import sys
from collections.abc import Callable
from pathlib import Path

from slipway.resources.kubernetes.objects import JOB
from tests.kubernetes.simulated import clock, dns, environment, mounts, pods, statuses
from tests.kubernetes.simulated.container import KILL, NOT_STARTED
from tests.kubernetes.simulated.kinds import SERVICES, Object
from tests.kubernetes.simulated.machine import Machine
from tests.kubernetes.simulated.statuses import ContainerStatus

POLL_SECONDS = 0.05
MESSAGE_BYTES = 4096
FALLBACK_LINES, FALLBACK_BYTES = 80, 2048
"""How much of a log stands in for a termination message (k8s.io/kubernetes/pkg/kubelet/kuberuntime)."""


class Worker:
    """`changed` is called when the pod's status has changed; `is_over` is true when no process of it runs or will."""

    def __init__(self, machine: Machine, pod: Object, folder: Path, changed: Callable[[], None]) -> None:
        self.pod, self.node = pod, pod["spec"]["nodeName"]
        self.is_over = False
        self._machine, self._folder, self._changed = machine, folder, changed
        spec, wait = pod["spec"], "PodInitializing" if pod["spec"].get("initContainers") else "ContainerCreating"
        self.init = [
            ContainerStatus(container["name"], container["image"], statuses.waiting(wait)) for container in _init(spec)
        ]
        self.main = [
            ContainerStatus(container["name"], container["image"], statuses.waiting(wait))
            for container in spec["containers"]
        ]
        self.since = clock.now()
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._out_of_memory: set[str] = set()
        self._is_killed = False
        self._is_stopping = False
        self._timer: asyncio.TimerHandle | None = None
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self, grace: int) -> None:
        """SIGTERM now, SIGKILL after the grace. A later call changes nothing: a kubelet that waits for a container
        to stop looks at nothing else of its pod (kubernetes/kubernetes#113606; seen on a real cluster).
        """
        if self._is_stopping:
            return
        self._is_stopping = True
        for container, process in self._running.items():
            self._machine.events.normal(self.pod, "Killing", f"Stopping container {container}", "kubelet")
            _send(process, "terminate")
        self._timer = asyncio.get_running_loop().call_later(grace, self.kill)

    def let_go(self) -> None:
        """The object was removed by force: kill, unless a stop with a grace is under way, which goes on."""
        if not self._is_stopping:
            self.kill()

    def kill(self) -> None:
        self._is_killed = True
        self._is_stopping = True
        for process in self._running.values():
            _send(process, "kill")

    def run_out_of_memory(self, container: str) -> None:
        """Kill a container above its memory limit, as the kernel does."""
        self._out_of_memory.add(container)
        _send(self._running[container], "kill")

    async def gone(self) -> None:
        """Wait until no process of the pod is left."""
        await asyncio.wait([self._task])

    def log(self, container: str) -> Path:
        return self._folder / f"{container}.log"

    def phase(self) -> str:
        return statuses.phase(self.init, self.main, self.is_over)

    async def _run(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        volumes = await self._volumes()
        for spec, status in zip(_init(self.pod["spec"]), self.init, strict=True):
            await self._container(spec, status, volumes)
            if status.exit_code != 0:
                break
        else:
            containers = zip(self.pod["spec"]["containers"], self.main, strict=True)
            await asyncio.gather(*(self._container(spec, status, volumes) for spec, status in containers))
        for status in [*self.init, *self.main]:
            if status.exit_code is None and self._is_stopping:
                status.state = statuses.terminated(137, "ContainerStatusUnknown", NEVER_STARTED)
        if self._timer:
            self._timer.cancel()
        self.is_over = True
        self._changed()

    async def _volumes(self) -> dict[str, Path]:
        while not self._is_stopping:
            try:
                return mounts.mounted(self._machine.store, self.pod, self._folder)
            except mounts.Missing as missing:
                self._machine.events.warning(self.pod, "FailedMount", str(missing), "kubelet")
                self._changed()
                await asyncio.sleep(POLL_SECONDS)
        return {}

    async def _container(self, spec: Object, status: ContainerStatus, volumes: dict[str, Path]) -> None:
        """Run the container until it has ended and its pod's policy does not start it again."""
        await self._image(spec, status)
        while not self._is_stopping:
            await self._once(spec, status, volumes)
            policy = self.pod["spec"]["restartPolicy"]
            if self._is_stopping or policy == "Never" or (status.exit_code == 0 and policy == "OnFailure"):
                return
            status.last, status.restarts = status.state, status.restarts + 1
            status.state = statuses.waiting("CrashLoopBackOff")
            self._changed()
            await asyncio.sleep(10 / clock.HURRY)

    async def _image(self, spec: Object, status: ContainerStatus) -> None:
        """Wait for the image, with the kubelet's events."""
        for state, reason, message in self._machine.absences(spec["image"], spec["imagePullPolicy"]):
            if self._is_stopping:
                return
            status.state = state
            self._machine.events.warning(self.pod, reason, message, "kubelet")
            self._changed()
            await asyncio.sleep(POLL_SECONDS)

    async def _once(self, spec: Object, status: ContainerStatus, volumes: dict[str, Path]) -> None:
        started, termination_log = clock.now(), self._folder / f"{spec['name']}.termination"
        termination_log.write_text("")
        process = await self._started(spec, mounts.paths(spec, volumes, termination_log))
        self._running[spec["name"]] = process
        if self._is_stopping:
            _send(process, "kill" if self._is_killed else "terminate")
        status.state = statuses.running()
        self._machine.events.normal(self.pod, "Started", "Container started", "kubelet")
        self._changed()
        code = await process.wait()
        del self._running[spec["name"]]
        status.state = self._ended(spec, 137 if code == -KILL else code if code >= 0 else 128 - code, started)
        self._changed()

    async def _started(self, spec: Object, paths: mounts.Paths) -> asyncio.subprocess.Process:
        variables = environment.environment(self.pod, spec)
        arguments = environment.command_line(spec, variables)
        variables = {name: self._on_this_machine(value, paths, name) for name, value in variables.items()}
        command = [self._on_this_machine(word, paths) for word in arguments]
        folder = spec.get("workingDir") or str(environment.ROOT)
        start = [sys.executable, "-S", "-m", "tests.kubernetes.simulated.container", folder, *command]
        with self.log(spec["name"]).open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *start, cwd=environment.ROOT, env=variables, stdout=log, stderr=log, stdin=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip

    def _on_this_machine(self, text: str, paths: mounts.Paths, name: str = "") -> str:
        """A word of the command for this machine: paths of mounts, names of pods and the ranks' port are replaced."""
        namespace, subdomain = self.pod["metadata"]["namespace"], self.pod["spec"].get("subdomain", "")
        services = [service["metadata"]["name"] for service in self._machine.store.all_of(SERVICES, namespace)]
        owner = pods.controller_of(self.pod) or {"name": self.pod["metadata"]["name"]}
        job = self.pod["metadata"].get("labels", {}).get(JOB, "").removesuffix("-store")
        port = self._machine.ports.of(namespace, job or subdomain or owner["name"])
        if name.endswith("_PORT") and text == dns.RENDEZVOUS:
            return port
        is_address = name.endswith("_ADDR")
        return mounts.on_this_machine(dns.resolved(text, namespace, services, port, is_address), paths)

    def _ended(self, spec: Object, code: int, started: str) -> Object:
        if spec["name"] in self._out_of_memory:
            return statuses.terminated(137, "OOMKilled", "", started)
        reason = "Completed" if code == 0 else "StartError" if code == NOT_STARTED else "Error"
        message = (self._folder / f"{spec['name']}.termination").read_bytes()[:MESSAGE_BYTES].decode(errors="replace")
        if not message and code and spec["terminationMessagePolicy"] == "FallbackToLogsOnError":
            lines = self.log(spec["name"]).read_bytes().splitlines(keepends=True)[-FALLBACK_LINES:]
            message = b"".join(lines)[-FALLBACK_BYTES:].decode(errors="replace")
        return statuses.terminated(code, reason, message, started)


NEVER_STARTED = "The container could not be located when the pod was terminated"


def _init(spec: Object) -> list[Object]:
    return list(spec.get("initContainers") or ())


def _send(process: asyncio.subprocess.Process, what: str) -> None:
    with contextlib.suppress(ProcessLookupError):
        if what == "terminate":
            process.terminate()
        else:
            process.send_signal(KILL)
