"""The ranks' output in Loki: what Alloy is told, which labels it finds, and that it is not there unless asked for."""

import re

from tests.deploy.rendering import VALUES, of_kind, workloads

THERE = "slipway-training"


def configuration() -> str:
    text = of_kind(workloads("full"), "ConfigMap")["slipway-logs"]["data"]["config.alloy"]
    assert isinstance(text, str)
    return text


def test_it_reads_the_pods_of_trainings_alone_and_names_what_a_person_asks_for():
    label_targets = dict(
        re.findall(r'source_labels = \["__meta_kubernetes_(\w+)"\]\s+target_label  = "(\w+)"', configuration())
    )
    assert label_targets == {
        "pod_label_slipway_training": "slipway_training",
        "pod_label_slipway_incarnation": "slipway_incarnation",
        "pod_node_name": "node",
        "pod_name": "pod",
    }
    assert f'names = ["{THERE}"]' in configuration() and 'action        = "keep"' in configuration()


def test_rank_and_step_are_found_in_the_lines_that_ranks_write():
    rank, step = (
        re.compile(pattern.replace("\\\\", "\\")) for pattern in re.findall(r'expression = "(.*)"', configuration())
    )
    for line in ("[default3]: loading", "[rank3]: a warning", "rank 3 of 8 on node-1"):
        assert (match := rank.search(line)) is not None and match["rank"] == "3", line
    assert (match := step.search("step 212/2000 loss 3.1416")) is not None and match["step"] == "212"


def test_braces_are_closed_and_every_part_that_is_named_is_there():
    text = configuration()
    assert text.count("{") == text.count("}")
    components = {f"{kind}.{label}" for kind, label in re.findall(r'^([a-z.]+) "(\w+)" \{', text, re.MULTILINE)}
    parts = re.findall(r"\b((?:discovery|loki)\.[a-z.]+\.(?:targets|output|receiver))", text)
    used = {reference.rpartition(".")[0] for reference in parts}
    assert used < components and len(components) == 5


def test_it_sends_to_the_loki_of_the_values_with_the_token_as_a_file():
    [container] = of_kind(workloads("full"), "Deployment")["slipway-logs"]["spec"]["template"]["spec"]["containers"]
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounted["secret"] == "/secrets/logs" and 'bearer_token_file = "/secrets/logs/token"' in configuration()
    assert 'url = "https://loki.example/loki/api/v1/push"' in configuration()


def test_without_an_image_nothing_is_installed():
    for case in sorted(set(VALUES) - {"full"}):
        assert [
            workload["metadata"]["name"]
            for workload in workloads(case)
            if workload["metadata"]["name"].endswith("-logs")
        ] == []
