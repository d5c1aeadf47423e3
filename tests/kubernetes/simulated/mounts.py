"""Volumes that hold objects: ConfigMaps as files in a folder of the pod, and the paths under which containers see them.

A claim or an emptyDir is what is mounted there on this machine: processes see the same paths as everybody.
"""

from pathlib import Path

from tests.kubernetes.simulated.kinds import CONFIG_MAPS, Object
from tests.kubernetes.simulated.store import Store

Paths = dict[str, str]
"""The path of a mount in the container, and the real path."""


class Missing(Exception):
    """A volume's source does not exist (yet); the message is that of the event FailedMount."""


def mounted(store: Store, pod: Object, folder: Path) -> dict[str, Path]:
    """Write the ConfigMaps that the pod's containers mount below the folder; return where each volume is."""
    folders, spec = {}, pod["spec"]
    containers = [*(spec.get("initContainers") or ()), *spec["containers"]]
    used = {mount["name"] for container in containers for mount in container.get("volumeMounts") or ()}
    for volume in spec.get("volumes") or ():
        if "configMap" in volume and volume["name"] in used:
            folders[volume["name"]] = folder / volume["name"]
            _write(store, pod["metadata"]["namespace"], volume, folders[volume["name"]])
    return folders


def paths(container: Object, volumes: dict[str, Path], termination_log: Path) -> Paths:
    """The paths of the container that lie elsewhere on this machine."""
    paths_by_mount = {container["terminationMessagePath"]: str(termination_log)}
    for mount in container.get("volumeMounts") or ():
        if mount["name"] in volumes:
            paths_by_mount[mount["mountPath"]] = str(volumes[mount["name"]] / mount.get("subPath", ""))
    return paths_by_mount


def on_this_machine(text: str, paths: Paths) -> str:
    """The text, if it is a path or ends in one, as it is on this machine."""
    for mount, there in paths.items():
        before, match, after = text.partition(mount)
        if match and after[:1] in ("", "/") and (not before or before.endswith("=")):
            return before + there + after
    return text


def _write(store: Store, namespace: str, volume: Object, folder: Path) -> None:
    source = volume["configMap"]
    config_map = store.get(CONFIG_MAPS, namespace, source["name"])
    if config_map is None:
        if source.get("optional"):
            return
        raise Missing(
            f'MountVolume.SetUp failed for volume "{volume["name"]}" : configmap "{source["name"]}" not found'
        )
    data = config_map.get("data") or {}
    folder.mkdir(parents=True, exist_ok=True)
    for item in source.get("items") or [{"key": key, "path": key} for key in data]:
        if item["key"] not in data:
            raise Missing(
                f'MountVolume.SetUp failed for volume "{volume["name"]}" : references non-existent config key'
            )
        (folder / item["path"]).write_text(data[item["key"]])
