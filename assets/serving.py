"""Serving: a request to serve a version exports and verifies it, and the front does the rest.

Each registered model has one asset, even if several recipes lead to it. The front switches between versions
(`slipway.serving.front`), and `slipway.sensors.serving` shows the serving versions on the asset.
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
    """The operations that change which versions answer, for all callers."""

    tiers: Tiers
    compute: Compute
    say: Say

    @property
    def records(self) -> ServingRecords:
        return ServingRecords(self.tiers.durable_path)

    def serve(self, version: Version, policy: SwitchPolicy, follows: bool, by: str, why: str) -> ServedState:
        """Export and verify a registered version and request to serve it; returns the wish without waiting for it.

        Raises NotServed and ValueError for a version that cannot or must not be served, DamagedCheckpoint, Unavailable,
        and Unreadable if the champion's record cannot be read.
        """
        self._admit(version)
        with exports.wanting(self.tiers.durable_path, version.model):
            served = self.exported(version)
            self._admit(version)  # check again, because the export may have taken long
            state = wishes.serve(self.records, version.model, served, policy, follows, by, why)
        self.ensure()
        self._count_trained(version, served)
        return state

    def _admit(self, version: Version) -> None:
        """Raises NotServed for a version that must not answer."""
        reason = refusal_to_answer(self.tiers.durable_path, version)
        if reason:
            raise NotServed(f"model {version.model}: {reason}")

    def _count_trained(self, version: Version, served: ServedVersion) -> None:
        """Count the version's training documents, for the comparison with its requests. Errors do not prevent
        serving."""
        try:
            snapshot = version.tags.get(SNAPSHOT_TAG)
            if snapshot:
                count_trained(self.tiers.durable_path, version.model, served, snapshot)
        except (ValueError, OSError) as error:
            self.say(f"its requests will not be compared with its training data: {error}")

    def stop(self, model: str, by: str, why: str) -> ServedState:
        """Request that no version of a model answers."""
        state = wishes.stop(self.records, model, by, why)
        self.ensure()
        return state

    def back(self, model: str, by: str, why: str) -> ServedState:
        """Request the previous version. Raises NotServed if there is none, or none that may answer."""

        def refusal(version: ServedVersion) -> str:
            registered = Version(model, version.number, "", {MANIFEST_TAG: version.checkpoint})
            return refusal_to_answer(self.tiers.durable_path, registered, again=True)

        state = wishes.back(self.records, model, by, why, refusal)
        self.ensure()
        return state

    def ensure(self) -> None:
        """Start the front if models should be served and it does not run. Raises Unavailable."""
        self.compute.serving(self.tiers).ensure(self.records)

    def settle(self, state: ServedState, seconds: float, still: Callable[[], None] = lambda: None) -> ServedState:
        """Wait until the wish has a verdict, or the canary answers its share; returns the latest state.

        It waits at most `seconds`, and calls `still` repeatedly.
        """
        deadline = time.monotonic() + seconds
        latest = self.records.state(state.model)
        while latest.number == state.number and time.monotonic() < deadline:
            answering = self.records.answering(state.model)
            if latest.verdict is not None or latest.desired is None or latest.desired.want == "stop":
                return latest
            if answering is not None and answering.wish == state.number and _compares(latest, answering):
                return latest
            still()
            time.sleep(POLL_SECONDS)
            latest = self.records.state(state.model)
        return latest

    def exported(self, version: Version) -> ServedVersion:
        """The version with its export, which is made once, and verified on every request."""
        if FOLDER_TAG not in version.tags:
            raise NotServed(f"model {version.model}: version {version.number} is not a checkpoint of Slipway")
        target = self.records.export(version.model, version.manifest)
        manifest = _verified(target) if exports.wanted_now(target) else ""
        if not manifest:
            commit = Commit(0, Token(0), version.tags[FOLDER_TAG], version.manifest)
            manifest = self._export(version, commit)
        folder = str(target.relative_to(self.tiers.durable_path))
        return ServedVersion(version.number, version.manifest, folder, manifest)

    def _export(self, version: Version, commit: Commit) -> str:
        """Export a version. Raises ValueError, DamagedCheckpoint and OSError."""
        from slipway.trainer.start import export  # imports all families of models, which few runs need

        target = self.records.export(version.model, version.manifest)
        precision = self.compute.serving(self.tiers).precision
        self.say(f"exporting version {version.number} of {version.model}")
        if version.training:
            store = all_trainings(self.tiers).store(version.training)
            if store.folder.is_dir():
                exporting = Exporting(self.tiers, self.compute, self.say)
                policy = store.run_policy()
                if exporting.is_for_a_job(commit, policy, target):
                    return exporting.export(commit, policy, target, None, precision, export.FILE_BYTES)
        source = self.tiers.durable_path / commit.folder
        return export.export(source, target, commit.manifest, precision=precision)


def _verified(target: Path) -> str:
    """The SHA-256 of the manifest of a complete export; empty after setting a damaged one aside."""
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
    """The champion by the record of its promotion, without MLflow; None before the first and after a demotion."""
    current = champion(tiers.durable_path, model)
    if not current:
        return None
    return Version(model, current.version, current.source, current.tags)


def after_demotion(records: ServingRecords, model: str, former: Promotion | None) -> str:
    """The effect of a demotion on the traffic, in words; empty if the former champion does not answer."""
    state = records.state(model)
    present = {version.checkpoint for version in (state.settled, state.coming) if version is not None}
    if former is None or former.manifest not in present:
        return ""
    remainder = f"no version of {model} answers after that"
    if len(present) > 1:
        remainder = "the other version answers alone"
    back = ""
    if former.before:
        back = f"; to serve the previous version: slipway models rollback {model} {former.before}"
    return f"; it stops answering within seconds, and {remainder}{back}"


def named(model: str, error: Exception) -> str:
    """The error's message, with the name of the model exactly once."""
    prefix = f"model {model}: "
    return prefix + str(error).removeprefix(prefix)


def served_key(model: str) -> dg.AssetKey:
    """The key of the asset that shows the serving versions of a registered model."""
    return keys.key(model, "served")


def served_asset(model: str, recipes: Sequence[ModelRecipe]) -> dg.AssetsDefinition:
    """The serving asset of a model; `recipes` are those that lead to its champion."""

    @dg.asset(
        key=served_key(model),
        deps=[keys.key(recipe.name, "champion") for recipe in recipes],
        group_name=keys.lane(model),
        kinds={"safetensors"},
        op_tags=pods.tags("served"),
        owners=[recipes[0].owner],
        description=(
            f"The versions of {model} that answer requests to OpenAI's API, with their shares of the traffic. "
            "Materialise it to serve the champion, and every later champion after it."
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
    """The registered models that can be served (decoders), each with the recipes that lead to it."""
    models: dict[str, list[ModelRecipe]] = {}
    for recipe in recipes:
        if recipe.model.kind == "decoder":
            models.setdefault(recipe.registered_model, []).append(recipe)
    return models


def served_assets(recipes: Sequence[ModelRecipe]) -> list[dg.AssetsDefinition]:
    """A serving asset for each registered model that can be served."""
    return [served_asset(model, leading) for model, leading in served_models(recipes).items()]


def asked_observation(model: str, drift: LiveDrift, day: str) -> dg.AssetObservation:
    """The event that shows the requests in comparison with the training data."""
    differences = ", ".join(f"{name} differ by {index:.3g}" for name, index in drift.figures.items())
    most = ", ".join(f"{language} {share:.0%}" for language, share in drift.languages.items())
    return dg.AssetObservation(
        served_key(model),
        description=f"{drift.texts:,} requests in {LIVE_DAYS} days ({most}); {differences} from the training data",
        metadata={
            "asked": drift.texts,
            "asked_not_counted": drift.left_out,
            "asked_day": day,
            "asked_languages": dg.MetadataValue.json(dict(drift.languages)),
            **{f"asked_{name}_drift": dg.MetadataValue.float(index) for name, index in drift.figures.items()},
        },
    )


def asked_of(tiers: Tiers, model: str) -> LiveDrift | None:
    """The drift of the champion's requests while the champion answers; None if it does not, or too little is known.

    Raises OSError and UndecodableRecord.
    """
    current = champion_of(tiers, model)
    settled = ServingRecords(tiers.durable_path).state(model).settled
    if current is None or settled is None or settled.checkpoint != current.manifest or SNAPSHOT_TAG not in current.tags:
        return None
    drift = live_drift(tiers.durable_path, model, settled, current.tags[SNAPSHOT_TAG])
    return drift if drift is not None and drift.figures else None


def answering_observation(model: str, answering: Answering, state: ServedState) -> dg.AssetObservation:
    """The event that shows the versions that answer."""
    shares = {f"share of {share.version.named(model)}": share.share for share in answering.shares}
    share_notes = "; ".join(f"{share.version.named(model)}: {share.note}" for share in answering.shares if share.note)
    news = ""
    if state.verdict is not None:
        news = state.verdict.why
    elif state.coming:
        news = f"a switch is in progress{': ' if share_notes else ''}{share_notes}"
    return dg.AssetObservation(
        served_key(model),
        description=answering.problem or news or "no version is served",
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
