"""Single sign-on in the chart: every page behind the proxy, nothing around it, secrets as files, who may do what."""

import copy
import itertools
from typing import Any

import pytest
import yaml
from helm_python import HelmError, HelmValuesError

from slipway.deploy.cluster import render
from slipway.resources import access
from slipway.resources.pages import mlflow_server
from slipway.resources.serving import objects as serving
from slipway.trainer.base import host_names
from tests.deploy.dagster_runs import platform_settings
from tests.deploy.reachability import End, reaches
from tests.deploy.rendering import IDENTITY, Object, of_kind, workloads

CONTROL, TRAININGS = render.NAMESPACE, "slipway-training"
PROXY, DEX, WEBSERVER, MLFLOW = (
    End(CONTROL, {"slipway/component": component}) for component in ("proxy", "dex", "webserver", "mlflow")
)
FRONT = End(TRAININGS, {"slipway/serves": "front"})
INGRESS, TEAM, RUN = End("ingress"), End("team"), End(CONTROL, {"slipway/component": "run"})
ISSUER, DATABASE, WORLD = (End(address=address) for address in ("10.7.0.9", "10.9.0.7", "203.0.113.9"))
PORTS = {"webserver": 4180, "mlflow": 4181, "serving": 4182}
REACHED = [
    *[(INGRESS, PROXY, port) for port in PORTS.values()],
    (PROXY, WEBSERVER, 3000),
    (PROXY, MLFLOW, 5000),
    (PROXY, FRONT, 8000),
    (PROXY, DEX, 5556),
    (PROXY, ISSUER, 443),
    (INGRESS, DEX, 5556),
    (DEX, ISSUER, 443),
    (RUN, MLFLOW, 5000),
]
NOT_REACHED = [
    (INGRESS, WEBSERVER, 3000),
    (INGRESS, MLFLOW, 5000),
    (INGRESS, FRONT, 8000),
    *[(TEAM, page, port) for page, port in ((PROXY, 4180), (DEX, 5556), (WEBSERVER, 3000))],
    *[(client, DATABASE, 5432) for client in (PROXY, DEX)],
    *[(client, WORLD, 443) for client in (PROXY, DEX)],
    (PROXY, End(TRAININGS, {"slipway/serves": "llama-3"}), 8000),
    (PROXY, End(TRAININGS, {"slipway/job": "llama-i1"}), 29500),
    (DEX, WEBSERVER, 3000),
    (RUN, PROXY, 4180),
]


def policies() -> list[Object]:
    return list(of_kind(workloads("identity"), "NetworkPolicy").values())


@pytest.mark.parametrize(("source", "target", "port"), REACHED)
def test_the_connection_is_allowed(source: End, target: End, port: int):
    assert reaches(policies(), source, target, port)


@pytest.mark.parametrize(("source", "target", "port"), NOT_REACHED)
def test_the_connection_is_denied(source: End, target: End, port: int):
    assert not reaches(policies(), source, target, port)


def test_a_page_without_a_host_is_reached_by_nobody():
    values = changed("identity", hosts={"webserver": "slipway.example"})
    [policy] = [
        document for document in rendered(values, "NetworkPolicy") if document["metadata"]["name"] == "slipway-mlflow"
    ]
    assert len(policy["spec"]["ingress"][0]["from"]) == 1, "runs and the code location alone"
    [proxy] = [
        document for document in rendered(values, "Deployment") if document["metadata"]["name"] == "slipway-proxy"
    ]
    assert [container["name"] for container in proxy["spec"]["template"]["spec"]["containers"]] == ["webserver"]


def test_each_host_leads_through_the_proxy_to_its_page_over_tls():
    ingresses = of_kind(workloads("identity"), "Ingress")
    services = of_kind(workloads("identity"), "Service")
    leads = {}
    for ingress in ingresses.values():
        [rule], [tls] = ingress["spec"]["rules"], ingress["spec"]["tls"]
        assert tls == {"hosts": [rule["host"]], "secretName": "slipway-hosts"}
        service = rule["http"]["paths"][0]["backend"]["service"]
        assert service["port"]["number"] in [port["port"] for port in services[service["name"]]["spec"]["ports"]]
        leads[rule["host"]] = (service["name"], service["port"]["number"])
    hosts = IDENTITY["identity"]["hosts"]
    assert leads == {
        **{hosts[page]: ("slipway-proxy", port) for page, port in PORTS.items()},
        "login.example": ("slipway-dex", 5556),
    }


def test_the_proxy_asks_the_issuer_and_hands_the_person_and_the_token_on():
    arguments = proxy_arguments()
    names = {"webserver": "slipway-webserver:80", "mlflow": "slipway-mlflow:5000"}
    names["serving"] = f"{serving.FRONT}.{TRAININGS}.svc:{serving.PORT}"
    for page, flags in arguments.items():
        assert flags["--upstream"] == f"http://{names[page]}"
        assert flags["--redirect-url"] == f"https://{IDENTITY['identity']['hosts'][page]}/oauth2/callback"
        assert flags["--http-address"] == f"0.0.0.0:{PORTS[page]}"
        assert flags["--oidc-issuer-url"] == "https://login.example" and flags["--cookie-secure"] == "true"
        assert {flags[flag] for flag in ("--pass-basic-auth", "--prefer-email-to-user", "--pass-user-headers")} == {
            "true"
        }
        assert not [word for word in flags if "secret" in word or "password" in word], "these are in the file"


def test_the_hosts_that_lead_to_a_page_are_names_under_which_it_answers():
    hosts = IDENTITY["identity"]["hosts"]
    spec = of_kind(workloads("identity"), "Deployment")["slipway-webserver"]["spec"]["template"]["spec"]
    [variable_value] = [
        variable["value"] for variable in spec["containers"][0]["env"] if variable["name"] == host_names.VARIABLE
    ]
    names = host_names.named({host_names.VARIABLE: variable_value})
    assert names >= {hosts["webserver"], "slipway-webserver", "slipway-webserver.slipway.svc"}
    values = {
        **copy.deepcopy(IDENTITY),
        "platform": {"serving": {"image": "registry.example/vllm:1", "hosts": ["own.example"]}},
    }
    maps = {document["metadata"]["name"]: document for document in rendered(values, "ConfigMap")}
    settings = yaml.safe_load(maps["slipway-platform"]["data"]["platform.yaml"])["compute"]["serving"]
    assert settings["hosts"] == [hosts["serving"], "own.example"]


def test_each_secret_is_a_file_in_the_pods_that_need_it_and_in_no_other():
    secret_keys = {
        (name, volume["secret"]["secretName"], item["key"])
        for name, deployment in of_kind(workloads("identity"), "Deployment").items()
        for volume in deployment["spec"]["template"]["spec"]["volumes"]
        for item in volume.get("secret", {}).get("items", ())
    }
    assert secret_keys == {
        *((f"slipway-{component}", "slipway-identity", "token") for component in ("webserver", "mlflow", "code")),
        ("slipway-proxy", "slipway-identity", "oauth2-proxy.cfg"),
        ("slipway-dex", "slipway-dex", "config.yaml"),
    }
    for page in ("webserver", "mlflow"):
        spec = of_kind(workloads("identity"), "Deployment")[f"slipway-{page}"]["spec"]["template"]["spec"]
        named = {variable["name"]: variable["value"] for variable in spec["containers"][0]["env"]}
        mounts = {mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]}
        assert named[access.TOKEN] == "/secrets/identity/token" and "/secrets/identity" in mounts


def test_mlflow_knows_people_by_their_roles_and_the_platform_by_the_token():
    def command(values: str) -> list[str]:
        spec = of_kind(workloads(values), "Deployment")["slipway-mlflow"]["spec"]["template"]["spec"]
        assert ("platform" in {volume["name"] for volume in spec["volumes"]}) is (values == "identity")
        return list(spec["containers"][0]["command"][:4])

    assert command("identity") == ["python", "-P", "-m", mlflow_server.__name__]
    assert command("minimal")[:2] == ["mlflow", "server"], "nobody is known: whoever reaches it edits it"
    assert platform_settings("identity").tracking.token_file == "/secrets/identity/token"
    assert platform_settings("minimal").tracking.token_file == ""


def test_the_webserver_knows_the_header_the_operators_and_the_promoters():
    settings = platform_settings("identity")
    assert settings.user_header == "X-Forwarded-User"
    assert (settings.operators, settings.promoters) == (["oda@x.example"], ["pia@x.example"])
    assert (settings.pages.dagster, settings.pages.mlflow) == ("https://slipway.example", "https://mlflow.example")
    assert platform_settings("minimal").operators == [] and platform_settings("minimal").user_header == ""


def test_mlflow_takes_requests_for_its_host():
    command = of_kind(workloads("identity"), "Deployment")["slipway-mlflow"]["spec"]["template"]["spec"]["containers"][
        0
    ]["command"]
    [hosts] = [word for word in command if word.startswith("--allowed-hosts=")]
    assert "mlflow.example" in hosts.split("=")[1].split(",")


@pytest.mark.parametrize(
    ("section", "fields", "message"),
    [
        ("proxy", {"image": ""}, "proxy.image: found none"),
        ("identity", {"secret": ""}, "identity.secret: found none"),
        ("identity", {"hosts": {"mlflow": "mlflow.example"}}, "identity.hosts.webserver: found none"),
        ("identity", {"userHeader": "X-User"}, "identity.userHeader: found a value"),
        ("identity", {"ingress": {"className": "nginx"}}, "identity.ingress.tlsSecret: found none"),
        ("identity", {"issuer": "https://other.example"}, 'identity.issuer: found "https://other.example"'),
        ("dex", {"secret": ""}, "dex.secret: found none"),
    ],
)
def test_values_that_contradict_each_other_are_refused(section: str, fields: dict[str, Any], message: str):
    with pytest.raises(HelmError) as refused:
        render.workloads(changed(section, **fields))
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"issuer": "http://login.example"}, "/identity/issuer"),
        ({"peers": []}, "/identity/peers"),
        ({"hosts": {"ui": "a.example"}}, "'ui'"),
    ],
)
def test_a_wrong_value_is_refused_with_its_path(fields: dict[str, Any], message: str):
    with pytest.raises(HelmValuesError) as refused:
        render.workloads(changed("identity", **fields))
    assert message in str(refused.value)


def changed(section: str, **fields: Any) -> dict[str, Any]:
    """The values of single sign-on with other fields in a section."""
    values = copy.deepcopy(IDENTITY)
    values[section] = {**values[section], **fields}
    return values


def rendered(values: dict[str, Any], kind: str) -> list[Object]:
    return [
        document
        for document in yaml.load_all(render.workloads(values), Loader=yaml.CSafeLoader)
        if document["kind"] == kind
    ]


def proxy_arguments() -> dict[str, dict[str, str]]:
    """The flags of the proxy of each page."""
    spec = of_kind(workloads("identity"), "Deployment")["slipway-proxy"]["spec"]["template"]["spec"]
    return {
        container["name"]: dict(itertools.chain(word.split("=", 1) for word in container["args"]))
        for container in spec["containers"]
    }
