"""The section `hardware`: named profiles with fields of one's own, as the environment that NCCL reads."""

from pathlib import Path
from typing import Any

import pytest

from slipway.trainer.base import atomic
from slipway.trainer.config import resolved as configuration
from slipway.trainer.config.operation import Hardware
from slipway.trainer.node import fabric
from tests.trainer.conftest import Training


def test_without_a_profile_nccl_decides():
    assert fabric.variables(Hardware()) == {}


def test_the_profile_of_the_reference_cluster_sets_its_values():
    assert fabric.variables(Hardware(profile="h200-infiniband")) == {
        "NCCL_IB_DISABLE": "0",
        "NCCL_NET": "IB",
        "NCCL_IB_HCA": "mlx5",
        "NCCL_IB_GID_INDEX": "3",
        "NCCL_NET_GDR_LEVEL": "PXB",
        "NCCL_NET_GDR_READ": "1",
        "NCCL_CROSS_NIC": "1",
        "NCCL_BUFFSIZE": "16777216",
        "NCCL_P2P_LEVEL": "NVL",
        "NCCL_SOCKET_IFNAME": "eth0",
        "GLOO_SOCKET_IFNAME": "eth0",
        "NCCL_DEBUG": "WARN",
    }


def test_the_plugin_that_reduces_in_switches_brings_a_network_of_its_own():
    environment = fabric.variables(Hardware(profile="h200-infiniband", algorithm="sharp"))
    assert "NCCL_NET" not in environment and environment["NCCL_COLLNET_ENABLE"] == "1"


def test_with_an_adapter_for_each_gpu_rings_stay_on_their_rails():
    assert fabric.variables(Hardware(profile="h100-8nic"))["NCCL_CROSS_NIC"] == "2"


def test_a_cluster_without_infiniband_does_not_look_for_it():
    environment = fabric.variables(Hardware(profile="ethernet"))
    assert (environment["NCCL_IB_DISABLE"], environment["NCCL_SOCKET_IFNAME"]) == ("1", "eth0")


def test_a_field_overrides_the_profile():
    environment = fabric.variables(Hardware(profile="h200-infiniband", adapters="=mlx5_0,mlx5_1", gpudirect_read=False))
    assert (environment["NCCL_IB_HCA"], environment["NCCL_NET_GDR_READ"]) == ("=mlx5_0,mlx5_1", "0")
    assert environment["NCCL_P2P_LEVEL"] == "NVL"


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        ("ring", {"NCCL_ALGO": "allreduce:ring"}),
        ("tree", {"NCCL_ALGO": "allreduce:tree,ring"}),
        ("hierarchical", {"NCCL_ALGO": "allreduce:nvlstree,ring"}),
        ("sharp", {"NCCL_ALGO": "allreduce:collnetdirect,collnetchain,ring", "NCCL_COLLNET_ENABLE": "1"}),
    ],
)
def test_an_algorithm_falls_back_to_rings_where_it_does_not_apply(algorithm: Any, expected: dict[str, str]):
    assert fabric.variables(Hardware(algorithm=algorithm)) == expected


def test_the_environment_overrides_everything_and_each_value_has_its_source():
    hardware = Hardware(profile="ethernet", debug="INFO")
    environment = {"NCCL_SOCKET_IFNAME": "bond0", "NCCL_NTHREADS": "256", "PATH": "/bin"}
    fabric.apply(hardware, environment)
    assert environment["NCCL_SOCKET_IFNAME"] == "bond0"
    assert fabric.in_force(hardware, environment) == {
        "GLOO_SOCKET_IFNAME": "eth0 (profile ethernet)",
        "NCCL_DEBUG": "INFO (recipe)",
        "NCCL_IB_DISABLE": "1 (profile ethernet)",
        "NCCL_NTHREADS": "256 (environment)",
        "NCCL_SOCKET_IFNAME": "bond0 (environment)",
    }


@pytest.mark.slow
def test_ranks_connect_with_the_settings_and_the_ledger_has_them(training: Training):
    training.configure(hardware={"debug": "WARN", "socket_interface": "lo", "timeout_seconds": 60.0}, run={"steps": 1})
    ended = training.run(ranks=2, NCCL_SOCKET_IFNAME="lo,eth")
    assert ended.code == 0, ended.err
    (started,) = training.events("started")
    assert started["settings"] == {
        "GLOO_SOCKET_IFNAME": "lo (recipe)",
        "NCCL_DEBUG": "WARN (recipe)",
        "NCCL_SOCKET_IFNAME": "lo,eth (environment)",
    }


@pytest.mark.slow
def test_a_missing_interface_is_an_error(training: Training):
    """What the section says reaches gloo: it is not decoration."""
    training.configure(hardware={"socket_interface": "none9"}, run={"steps": 1})
    ended = training.run(ranks=2)
    assert ended.code != 0 and "none9" in ended.err


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("profile", "h300", "found 'h300', expected one of 'none', 'ethernet', 'h200-infiniband', 'h100-8nic'"),
        ("gpudirect_level", 5, "found 5, expected one of 'LOC', 'PIX', 'PXB', 'PHB', 'SYS'"),
        ("timeout_seconds", 0, "expected a number above 0"),
        ("buffer_bytes", -1, "expected a number above 0"),
        ("NCCL_TIMEOUT", 3600, "unknown; expected one of profile, infiniband"),
    ],
)
def test_a_wrong_setting_is_named_with_what_is_expected(
    document: dict[str, Any], tmp_path: Path, field: str, value: object, message: str
):
    path = tmp_path / "config.json"
    path.write_bytes(atomic.readable_json({**document, "hardware": {field: value}}))
    with pytest.raises(ValueError, match=f"field hardware.{field}: {message}"):
        configuration.load(path)
