"""Runs generation tasks on a registered version, in a job on one rank.

The version is exported and verified as for serving, and the job's worker verifies it again before loading. Every
answered example is stored on the durable tier, so a checkpoint answers the same question only once. On a cluster the
job uses the platform's image, because the trainer's image does not contain the server.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg
from dagster import DagsterExecutionInterruptedError

from slipway.assets.measurement import Measuring
from slipway.assets.serving import Serving
from slipway.assets.suites.generation import answers, generate, harness
from slipway.assets.suites.generation.answers import TaskFigures
from slipway.assets.suites.generation.generate import Questions
from slipway.recipes.suite import GenerationSection
from slipway.resources.mlflow.registry import Version
from slipway.resources.short_jobs import size
from slipway.resources.short_jobs.attempts import ShortJob
from slipway.resources.short_jobs.running import ShortJobFailed
from slipway.resources.trainings.store import all_trainings
from slipway.serving.records import ServedVersion
from slipway.trainer.base import codec


@dataclass(frozen=True)
class Generating:
    """Runs tasks on the versions of one registered model."""

    measuring: Measuring
    model: str

    def of_suite(self, version: Version, section: GenerationSection, anew: bool = False) -> dict[str, TaskFigures]:
        """The metrics of a suite's tasks, by name. Stored answers are reused, unless `anew`.

        Raises ValueError for a version that cannot be served, and dg.Failure, with the log's place, if the job fails.
        """
        durable = self.measuring.tiers.durable_path
        figures_by_task = {
            task: None if anew else answers.known(durable, version.manifest, task, section.examples)
            for task in section.tasks
        }
        open_tasks = tuple(task for task, known in figures_by_task.items() if known is None)
        if open_tasks:
            questions = Questions(open_tasks, section.examples, section.include or "", section.hours)
            figures_by_task |= {figures.task: figures for figures in self.answer(version, questions, anew)}
        return {task: known for task, known in figures_by_task.items() if known is not None}

    def answer(self, version: Version, questions: Questions, anew: bool = False) -> Sequence[TaskFigures]:
        """The metrics of tasks, from a finished job whose examples still exist, a running job, or a new one.

        Raises as `of_suite`.
        """
        measuring = self.measuring
        if measuring.compute.sees_nodes:
            generate.check(questions.tasks)  # the job has the same packages as this process
        served = Serving(measuring.tiers, measuring.compute, measuring.say).exported(version)
        job = self._job(version, served, questions)
        if anew:
            measuring.compute.short_jobs(measuring.tiers).forget(job)
        figures_by_task = self._run(job)
        durable = measuring.tiers.durable_path
        if any(
            answers.known(durable, figures.manifest, figures.task, figures.requested_examples) is None
            for figures in figures_by_task
        ):
            measuring.compute.short_jobs(measuring.tiers).forget(job)
            figures_by_task = self._run(job)
        return figures_by_task

    def _run(self, job: ShortJob) -> Sequence[TaskFigures]:
        jobs = self.measuring.compute.short_jobs(self.measuring.tiers)
        try:
            result = jobs.run(job, self.measuring.say)
        except ShortJobFailed as error:
            raise dg.Failure(str(error)) from None
        except DagsterExecutionInterruptedError:
            if self.measuring.cancelled():
                jobs.stop(job)
            raise
        return [codec.build(TaskFigures, figures) for figures in result["figures"]]

    def _job(self, version: Version, served: ServedVersion, questions_of_suite: Questions) -> ShortJob:
        """The job, whose identity is the exported bytes, the questions and the harness."""
        tiers = self.measuring.tiers
        compute = self.measuring.compute
        questions = codec.plain(questions_of_suite)
        image = compute.serving(tiers).image
        return ShortJob(
            kind="generate",
            about=f"version {version.number} of {self.model}",
            identity={"manifest": served.manifest, "questions": questions, "harness": harness.version()},
            command=("python", "-P", "-m", "slipway.assets.suites.generation"),
            request={
                "durable": str(tiers.durable_path),
                "model": self.model,
                "version": codec.plain(served),
                "questions": questions,
            },
            kubernetes={**self._placement(version), **({"image": image} if image else {})},
        )

    def _placement(self, version: Version) -> Mapping[str, Any]:
        """The section `placement.kubernetes` of the version's training, for one rank; empty if the training is gone."""
        store = all_trainings(self.measuring.tiers).store(version.training) if version.training else None
        if store is None or not store.folder.is_dir():
            return {}
        return size.with_gpus(store.run_policy().kubernetes, 1)
