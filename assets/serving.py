"""Served: what answers for a model. Wanting a version exports it, verified, and the front does the rest.

One asset a registered model, whichever recipes lead to it. Its front switches from version to version
(`slipway.serving.front`), and `slipway.sensors.serving` shows on the asset what answers.
"""

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import dagster as dg

from slipway.assets import keys
from slipway.assets.drift import LIVE_DAYS, LiveDrift, count_trained, live_drift
from slipway.assets.execution import pods
from slipway.assets.exporting import Exporting
from slipway.recipes.training import ModelRecipe
from slipway.resources import exports, identity
from slipway.resources.compute.protocol import Compute
from slipway.resources.mlflow.registry import FOLDER_TAG, MANIFEST_TAG, SNAPSHOT_TAG, Version
from slipway.resources.promotions.promotion import Promotion, champion, refusal_to_answer
from slipway.resources.serving import wishes
from slipway.resources.serving.wishes import NotServed
from slipway.resources.short_jobs.running import Say
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.store import all_trainings
from slipway.serving.records import Answering, ServedState, ServedVersion, ServingRecords, SwitchPolicy
from slipway.trainer.base import digest, regular_file
from slipway.trainer.checkpoint.disk.manifest import MANIFEST
from slipway.trainer.checkpoint.disk.reading import DamagedCheckpoint
from slipway.trainer.checkpoint.disk.verification import read_manifest, verify_file
from slipway.trainer.record.fence import Commit, Token, Unreadable

SERVES_TAG = "slipway/serves"
POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Serving:
    """What changes which versions of the models answer, by whomever it is asked."""

    tiers: Tiers
    compute: Compute
    say: Say

    @property
    def records(self) -> ServingRecords:
        return ServingRecords(self.tiers.durable_path)

    def serve(self, version: Version, policy: SwitchPolicy, follows: bool, by: str, why: str) -> ServedState:
        """Want a registered version, exported and verified; returns at once with the wish.

        Raises NotServed and ValueError for a version that cannot or may not be served, DamagedCheckpoint, Unavailable,
        and Unreadable where nobody knows who the champion is.
        """
        self._admit(version)
        with exports.wanting(self.tiers.durable_path, version.model):
            served = self.exported(version)
            self._admit(version)  # again: an export takes its time
            state = wishes.serve(self.records, version.model, served, policy, follows, by, why)
        self.ensure()
        self._count_trained(version, served)
        return state

    def _admit(self, version: Version) -> None:
        """Raises NotServed for a version that may not answer."""
        if reason := refusal_to_answer(self.tiers.durable_path, version):
            raise NotServed(f"model {version.model}: {reason}")

    def _count_trained(self, version: Version, served: ServedVersion) -> None:
        """Count what the version was trained on, beside which is shown what it is asked; served it is in any case."""
        try:
            if snapshot := version.tags.get(SNAPSHOT_TAG):
                count_trained(self.tiers.durable_path, version.model, served, snapshot)
        except (ValueError, OSError) as error:
            self.say(f"what it is asked will not be compared with what it was trained on: {error}")

    def stop(self, model: str, by: str, why: str) -> ServedState:
        """Want nothing of a model any more."""
        state = wishes.stop(self.records, model, by, why)
        self.ensure()
        return state

    def back(self, model: str, by: str, why: str) -> ServedState:
        """Want what answered before. Raises NotServed where there is nothing, or nothing that may answer."""

        def refusal(version: ServedVersion) -> str:
            registered = Version(model, version.number, "", {MANIFEST_TAG: version.checkpoint})
            return refusal_to_answer(self.tiers.durable_path, registered, again=True)

        state = wishes.back(self.records, model, by, why, refusal)
        self.ensure()
        return state

    def ensure(self) -> None:
        """Have what is wanted run. Raises Unavailable."""
        self.compute.serving(self.tiers).ensure(self.records)

    def settle(self, state: ServedState, seconds: float, still: Callable[[], None] = lambda: None) -> ServedState:
        """The state once there is a verdict over the wish, or the share of a canary answers; or after so many seconds.

        `still` is called again and again meanwhile.
        """
        deadline = time.monotonic() + seconds
        while (latest := self.records.state(state.model)).number == state.number and time.monotonic() < deadline:
            answering = self.records.answering(state.model)
            if latest.verdict is not None or latest.desired is None or latest.desired.want == "stop":
                return latest
            if answering is not None and answering.wish == state.number and _compares(latest, answering):
                return latest
            still()
            time.sleep(POLL_SECONDS)
        return latest

    def exported(self, version: Version) -> ServedVersion:
        """The version as workers load it: exported once, and verified each time that it is wanted."""
        if FOLDER_TAG not in version.tags:
            raise NotServed(f"model {version.model}: version {version.number} is none of our checkpoints")
        target = self.records.export(version.model, version.manifest)
        manifest = _verified(target) if exports.wanted_now(target) else ""
        if not manifest:
            commit = Commit(0, Token(0), version.tags[FOLDER_TAG], version.manifest)
            manifest = self._export(version, commit)
        folder = str(target.relative_to(self.tiers.durable_path))
        return ServedVersion(version.number, version.manifest, folder, manifest)

    def _export(self, version: Version, commit: Commit) -> str:
        """Raises ValueError, DamagedCheckpoint, and OSError."""
        from slipway.trainer.start import export  # with all families of models, which few runs need

        target = self.records.export(version.model, version.manifest)
        precision = self.compute.serving(self.tiers).precision
        self.say(f"exporting version {version.number} of {version.model}")
        if version.training and (store := all_trainings(self.tiers).store(version.training)).folder.is_dir():
            exporting, policy = Exporting(self.tiers, self.compute, self.say), store.run_policy()
            if exporting.is_for_a_job(commit, policy, target):
                return exporting.export(commit, policy, target, None, precision, export.FILE_BYTES)
        source = self.tiers.durable_path / commit.folder
        return export.export(source, target, commit.manifest, precision=precision)


def _verified(target: Path) -> str:
    """The SHA-256 of the manifest of an export that is whole; a damaged one is put aside, and "" is returned."""
    with contextlib.suppress(DamagedCheckpoint, FileNotFoundError):
        manifest = digest.sha256(regular_file.read(target / MANIFEST))
        for name, expected in read_manifest(target, manifest).files.items():
            verify_file(target / name, expected)
        return manifest
    exports.set_damaged_aside(target)
    return ""


def _compares(state: ServedState, answering: Answering) -> bool:
    """Whether a canary answers its share."""
    share = state.desired.policy.share if state.desired else 1.0
    return share < 1.0 and len(answering.shares) == 2 and all(answer_share.ready for answer_share in answering.shares)


def champion_of(tiers: Tiers, model: str) -> Version | None:
    """The champion as its promotion recorded it, read without MLflow; None before the first, and after a demotion."""
    current = champion(tiers.durable_path, model)
    return Version(model, current.version, current.source, current.tags) if current else None


def after_demotion(records: ServingRecords, model: str, former: Promotion | None) -> str:
    """What becomes of the traffic of a champion that is one no more; empty where it does not answer."""
    state = records.state(model)
    present = {version.checkpoint for version in (state.settled, state.coming) if version is not None}
    if former is None or former.manifest not in present:
        return ""
    remainder = "the other version answers alone" if len(present) > 1 else f"nothing answers for {model} from then on"
    back = (
        f"; for the one before it to answer: slipway models rollback {model} {former.before}" if former.before else ""
    )
    return f"; it stops answering within seconds, and {remainder}{back}"


def named(model: str, error: Exception) -> str:
    """What is wrong, with the name of the model once."""
    prefix = f"model {model}: "
    return prefix + str(error).removeprefix(prefix)


def served_key(model: str) -> dg.AssetKey:
    """The asset that shows what answers for a registered model."""
    return keys.key(model, "served")


def served_asset(model: str, recipes: Sequence[ModelRecipe]) -> dg.AssetsDefinition:
    """What answers for a model, to whose champion these recipes lead."""

    @dg.asset(
        key=served_key(model),
        deps=[keys.key(recipe.name, "champion") for recipe in recipes],
        group_name=keys.lane(model),
        kinds={"safetensors"},
        op_tags=pods.tags("served"),
        owners=[recipes[0].owner],
        description=(
            f"What answers for {model} behind OpenAI's API, and with which share of the traffic. Materialising it "
            "serves the champion, and lets later champions follow."
        ),
    )
    def served(context: dg.AssetExecutionContext, tiers: Tiers, compute: Compute) -> dg.MaterializeResult[None]:
        champion = champion_of(tiers, model)
        if champion is None:
            raise dg.Failure(f"model {model}: there is no champion yet")
        serving = Serving(tiers, compute, lambda message: context.log.info(message))
        desired = serving.records.state(model).desired
        policy = desired.policy if desired is not None else SwitchPolicy()
        try:
            state = serving.serve(champion, policy, True, identity.of_run(context.run), "it is the champion")
        except (ValueError, DamagedCheckpoint, Unreadable) as error:
            raise dg.Failure(named(model, error)) from None
        return dg.MaterializeResult(
            metadata={"version": champion.number, "share": policy.share, "wish": state.number},
            data_version=dg.DataVersion(champion.manifest),
        )

    return served


def served_models(recipes: Sequence[ModelRecipe]) -> dict[str, list[ModelRecipe]]:
    """The registered models that can be asked, which are decoders, each with the recipes that lead to it."""
    models: dict[str, list[ModelRecipe]] = {}
    for recipe in recipes:
        if recipe.model.kind == "decoder":
            models.setdefault(recipe.registered_model, []).append(recipe)
    return models


def served_assets(recipes: Sequence[ModelRecipe]) -> list[dg.AssetsDefinition]:
    """One for each registered model that can be asked."""
    return [served_asset(model, leading) for model, leading in served_models(recipes).items()]


def asked_observation(model: str, drift: LiveDrift, day: str) -> dg.AssetObservation:
    """The event that shows what is asked, beside what was trained on."""
    differences = ", ".join(f"{name} differ by {index:.3g}" for name, index in drift.figures.items())
    most = ", ".join(f"{language} {share:.0%}" for language, share in drift.languages.items())
    return dg.AssetObservation(
        served_key(model),
        description=f"asked {drift.texts:,} times in {LIVE_DAYS} days ({most}); {differences} from the training data",
        metadata={
            "asked": drift.texts,
            "asked_not_counted": drift.left_out,
            "asked_day": day,
            "asked_languages": dg.MetadataValue.json(dict(drift.languages)),
            **{f"asked_{name}_drift": dg.MetadataValue.float(index) for name, index in drift.figures.items()},
        },
    )


def asked_of(tiers: Tiers, model: str) -> LiveDrift | None:
    """What the champion is asked while it is what answers; None where it does not, or too little is known.

    Raises OSError and UndecodableRecord.
    """
    current = champion_of(tiers, model)
    settled = ServingRecords(tiers.durable_path).state(model).settled
    if current is None or settled is None or settled.checkpoint != current.manifest or SNAPSHOT_TAG not in current.tags:
        return None
    drift = live_drift(tiers.durable_path, model, settled, current.tags[SNAPSHOT_TAG])
    return drift if drift is not None and drift.figures else None


def answering_observation(model: str, answering: Answering, state: ServedState) -> dg.AssetObservation:
    """The event that shows what answers."""
    shares = {f"share of {share.version.named(model)}": share.share for share in answering.shares}
    share_notes = "; ".join(f"{share.version.named(model)}: {share.note}" for share in answering.shares if share.note)
    under_way = f"a switch is under way{': ' if share_notes else ''}{share_notes}" if state.coming else ""
    news = state.verdict.why if state.verdict is not None else under_way
    return dg.AssetObservation(
        served_key(model),
        description=answering.problem or news or "nothing is served",
        metadata={
            "url": dg.MetadataValue.url(answering.url),
            "wish": answering.wish,
            **shares,
            **{
                name: dg.MetadataValue.float(value)
                for name, value in (state.verdict.figures if state.verdict else {}).items()
            },
        },
    )
