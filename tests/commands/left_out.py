"""Commands that the walk does not type, with the reason, and the test that does instead where there is one."""

PACKAGES = "it installs packages; CI does it on every change"
SUITE = "it runs the tests themselves, whichever of them"
CLUSTER = "it needs a cluster: "
LONG = "a benchmark of minutes; `--help` of it is called"
CALLS = "after an installation it calls what the walk calls: "
SERVED = "it has the text of `slipway metrics show --jobs`, and the server of `slipway metrics serve`"

LEFT_OUT = {
    "make install": PACKAGES,
    "make demo": CALLS + "slipway demo",
    "make demo PYTHON=python3.12": CALLS + "slipway demo",
    "SLIPWAY_TRAININGS__TINY_DECODER__RUN__STEPS=50 SLIPWAY_HOME=/tmp/short make demo": CALLS + "slipway demo",
    "make dev": CALLS + "slipway dev",
    "SLIPWAY_PORT=3001 make dev": CALLS + "slipway dev",
    "make recipes": CALLS + "slipway recipes check",
    "make docs": "CI does it on every change, and a dead link fails there",
    "make lint": SUITE,
    "make test": SUITE,
    "make check": SUITE,
    "make changed": SUITE,
    "make test-slow": SUITE,
    "make test-nightly": SUITE,
    "make coverage": SUITE,
    "make screenshots": "it runs the tests of tests/browser with another folder for the pictures",
    "make lock": PACKAGES,
    "make lock UPGRADE=1": PACKAGES,
    "make bench": "hours of benchmarks, each of which is a module",
    "make clean": "it removes the environment in which the tests run",
    "python -m pytest tests/trainer/record/test_fence.py -k sealed": SUITE,
    "python -m MODULE": "a form, not a command",
    "python -m slipway.trainer CONFIG.json": "tests/trainer/test_ranks.py starts ranks so",
    "python -m slipway.trainer config.json": "tests/trainer/test_ranks.py starts ranks so",
    "python -m slipway.trainer.node_task CONFIG": "tests/kubernetes/test_staging_by_pods.py starts it so",
    "python -m slipway.assets.datasets.building.dask_process scheduler|worker --certificates FOLDER": (
        "tests/assets/datasets/test_workers.py starts both"
    ),
    "python -m slipway.deploy.cluster.pin": "it writes the digests of images of a registry into the chart's values",
    "python -m benchmarks.checkpoint --help": LONG,
    "python -m benchmarks.cluster": LONG,
    "python -m benchmarks.communication": LONG,
    "python -m benchmarks.gpu_proof --device cpu": "tests/benchmarks/test_gpu_proof.py runs it so",
    "python -m benchmarks.gpu_proof --only connection stale": "it needs a GPU",
    "python -m benchmarks.gpu_proof --out results": "it needs a GPU",
    "python -m benchmarks.loader": LONG,
    "python -m benchmarks.observation": LONG,
    "python -m benchmarks.quality": LONG,
    "python -m benchmarks.restart": LONG,
    "python -m benchmarks.simulate": LONG,
    "python -m benchmarks.start": LONG,
    "python -m benchmarks.step --rounds 12": LONG,
    "python -m benchmarks.tracing": LONG,
    "python -m benchmarks.tracking": LONG,
    "SLIPWAY_HOME=/data/slipway slipway demo": "the walk's own home is in the environment: slipway demo",
    "slipway cluster render": "it needs kubectl; tests/deploy/test_kustomize.py renders the same where there is one",
    "slipway nodes cordon node-7 --why 'Xid 79' --apply": CLUSTER + "tests/kubernetes/test_cordon.py",
    "slipway nodes uncordon node-7 --why 'new GPU' --apply": CLUSTER + "tests/kubernetes/test_cordon.py",
    "slipway branch ID@9000 'mix.phases=[{after_step: 9000, weights: {web: 1, code: 1}}]'": (
        "it needs a training on several datasets: tests/trainer/test_mixes.py"
    ),
    "slipway upgrade --undo": "tests/operations/upgrade/test_upgrading.py takes upgrades back",
    "python -m slipway.cli upgrade --undo": "tests/operations/upgrade/test_upgrading.py takes upgrades back",
    "slipway demo --serve": "it answers until it is told to stop; tests/embedded/test_demo.py runs it without",
    "slipway metrics serve --jobs": SERVED,
    "slipway metrics serve --port 9465 --jobs": SERVED,
    "slipway models demote slipway-tiny --why 'it leaks addresses'": (
        "a test calls it without a reason; that of `models rollback` is the same option"
    ),
    "slipway models ask slipway-tiny 'def main(' --tokens 48": "tests/drills/test_ui_champion.py asks with 8 tokens",
    "slipway models serve MODEL 3 --percent 10": "tests/serving/test_rollout.py shifts traffic by shares",
    "slipway models serve slipway-tiny 3 --percent 10": "tests/serving/test_rollout.py shifts traffic by shares",
    "slipway nodes bisect node-0 node-1 node-2 node-3": "tests/resources/node_tasks/test_together.py bisects nodes",
}
