"""The walk: the commands of all pages in an order in which each has what it needs, in one home, from nothing.

The home has the demo's recipes, made small, and those that `slipway init` writes. `{…}` is what the home has by then:
the names of `tests.commands.reader`.
"""

from tests.commands.turn import Turn, own

RECIPES = (
    Turn("slipway init my-recipes", says="trainings/my-model.yaml"),
    Turn("slipway recipes new training my-model", "slipway recipes new training other-model", says="other-model.yaml"),
    Turn("slipway recipes new training my-decoder", says="my-decoder.yaml"),
    Turn("slipway recipes new KIND NAME", "slipway recipes new suite my-suite", says="my-suite.yaml"),
    Turn("slipway recipes check", says="my-texts"),
    Turn("slipway recipes check [FOLDER]", "slipway recipes check ."),
    Turn("slipway recipes check <folder>", "slipway recipes check {recipes}"),
    Turn("slipway recipes show tiny-decoder --json", says='"steps"'),
    Turn("slipway plan tiny-decoder batch.micro=8"),
    Turn("slipway plan my-decoder", says="needed"),
    Turn("slipway plan my-model", says="needed"),
    Turn("slipway plan my-model --on h200-32", says="needed"),
    Turn("slipway plan my-model batch.micro=8 --on h200-32", says="needed"),
    Turn("slipway plan NAME --on h200-32", "slipway plan tiny-decoder --on h200-32", says="needed"),
    Turn("slipway plan NAME [FIELD=VALUE ...] [--on PROFILE]", "slipway plan tiny-decoder run.steps=9 --on h200-32"),
    Turn("slipway simulate 16384 stall=0.5 spares=16"),
    Turn("slipway simulate 1024 stall=0.3 interval=600"),
    Turn("slipway simulate GPUS [FIELD=VALUE]...", "slipway simulate 64"),
    Turn("slipway --help", says="Groups of verbs"),
    Turn("slipway VERB --help", "slipway run --help", says="Example"),
    Turn("slipway --install-completion", "HOME=$PWD/of-the-shell slipway --install-completion bash", says="completion"),
    Turn("python -m slipway.cli", code=2, says="Usage"),
    Turn("python -m slipway.cli ls"),
    Turn("slipway cluster schema", in_code=True, says="values.schema.json"),
    Turn("slipway metrics render", in_code=True, says="rules.yaml"),
)
DATA = (
    Turn("slipway data build my-texts", says="points at snapshot"),
    Turn("slipway data build python-stdlib", says="points at snapshot"),
    *(
        turn
        for text in ("one", "two", "three")
        for turn in (
            own(f"cp corpus/forum.jsonl corpus/{text}.jsonl; sed -i 's/thing/{text}/g' corpus/{text}.jsonl"),
            own("slipway data build my-texts && slipway data build python-stdlib"),
        )
    ),
    Turn("slipway data list", says="my-texts"),
    Turn("slipway data history my-texts", says="~3"),
    Turn("slipway data history python-stdlib", says="~3"),
    Turn("slipway data diff my-texts", says="documents"),
    Turn("slipway data diff my-texts ~3 ~0", says="documents"),
    Turn("slipway data diff python-stdlib ~3 ~0", says="documents"),
    Turn("slipway data inspect my-texts", says="documents"),
    Turn("slipway data inspect python-stdlib --reason near_duplicate --examples 10", says="near_duplicate"),
    Turn(
        "slipway data takedown my-texts --url https://a.example/page --why 'its author asked for it'",
        says="snapshot",
    ),
    Turn(
        "slipway data takedown my-texts --document forum.jsonl#17 --document notes/a.txt --why 'a private letter'",
        says="snapshot",
    ),
    Turn(
        "slipway data takedown my-texts --under https://a.example/ --why 'the owner of the site asked for it'",
        says="nothing is noted yet; to take them down: --apply",
    ),
    Turn("slipway data stage python-stdlib --to /nvme/slipway", "slipway data stage python-stdlib --to {nvme}"),
    Turn(
        "slipway data stage SHA256 --from /cephfs/slipway --from /mnt/replica --to /nvme/slipway",
        "slipway data stage {snapshot} --from {durable} --from {replica} --to {nvme}2",
    ),
    Turn(
        "slipway data stage SHA256 --from /cephfs/slipway --to /nvme/slipway --node node-3 "
        "--nodes node-0,node-1,node-2,node-3",
        "slipway data stage {snapshot} --from {durable} --to {nvme}3 --node node-3 --nodes node-0,node-1,node-2,node-3",
    ),
    Turn(
        "slipway nodes clean --nvme /nvme/slipway --gigabytes 800 --days 7 --dry-run",
        "slipway nodes clean --nvme {nvme} --gigabytes 800 --days 7 --dry-run",
    ),
    Turn(
        "slipway data replicate python-stdlib --to s3://bucket/slipway",
        "slipway data replicate python-stdlib --to {s3}",
    ),
    Turn(
        "slipway data replicate my-texts --to <address of the backup tier>",
        "slipway data replicate my-texts --to {s3}",
    ),
    Turn("slipway data scrub", says="0 damaged"),
    Turn("slipway data scrub --rebuild", says="0 damaged"),
    Turn("slipway data gc"),
    Turn("slipway data gc --keep 3 --apply"),
    Turn("slipway data gc --keep 0 --apply"),
)
AT_ONCE = (
    Turn("slipway quotas"),
    Turn("slipway incidents", says="tiny-decoder"),
    Turn("slipway incidents --training tiny-dec", says="tiny-decoder"),
    Turn("slipway incidents --training ID", "slipway incidents --training {training}", says="tiny-decoder"),
    Turn("slipway incidents --since 12h", says="1 incident"),
    Turn("slipway incidents --since 8h", says="1 incident"),
    Turn("slipway incidents --since 12h --page morning.html", says="morning.html"),
    Turn("slipway incidents --since 1h --training ID", "slipway incidents --since 1h --training {training}"),
    Turn("slipway incidents show NAME", "slipway incidents show {incident}", says="SIGKILL|killed"),
    Turn("slipway logs tiny-dec --since 10m --grep loss"),
    Turn("slipway metrics show", says="slipway_"),
    Turn("slipway metrics show --jobs", says="slipway_"),
    Turn("slipway checkpoints list tiny-dec", says="80"),
    Turn(
        "slipway checkpoints verify tiny-dec@80 --tier backup", "slipway checkpoints verify tiny-dec@80 --tier durable"
    ),
    Turn("slipway checkpoints reseal --dry-run"),
    Turn("slipway checkpoints reseal"),
    Turn("slipway sweeps list", says="tiny-decoder"),
    Turn("slipway sweeps show tiny-dec", says="Best: trial"),
    Turn("slipway sweeps show tiny-dec --html report.html", says="report.html"),
    Turn("slipway sweeps show tiny-dec --json", says='"order"'),
    Turn("slipway sweeps export tiny-dec tiny-decoder.journal", says="has the study"),
    Turn("slipway chaos"),
    Turn("slipway chaos --minutes 15 --every 60 --seed 7 --apply", code=1, says="that makes steps now"),
    Turn("slipway nodes list", says="node-1"),
    Turn("slipway nodes preflight", "slipway nodes preflight --seconds 0 --disk-size 8M --largest 8M", says="disk"),
    Turn(
        "slipway nodes preflight --folder /nvme",
        "slipway nodes preflight --folder . --seconds 0 --disk-size 8M --largest 8M",
        says="disk",
    ),
    Turn(
        "slipway nodes preflight --folder /nvme --expect 'disk read=7'",
        "slipway nodes preflight --folder . --seconds 0 --disk-size 8M --largest 8M --expect 'disk read=100000'",
        code=1,
        says="disk read",
    ),
    Turn("slipway stop tiny-dec", says="tiny-decoder"),
    Turn("slipway rm tiny-dec --apply", says="tiny-decoder"),
)
"""On a small home that is written, not run: they take less than a second each."""
WALK = (*RECIPES, *DATA)
