"""Job metrics: the metrics that a running training exports, from the events of its ledger and its ranks' heartbeats.

Counters begin at 0 with each incarnation, as Prometheus expects of a new process. The label `training` has one value in
each exporter, and `rank` only the ranks of one node. So a job of any size adds a bounded number of series per node.
"""

from collections.abc import Iterable, Mapping, Sequence

from slipway.trainer.base.exposition import Distribution, Exposition, Metric
from slipway.trainer.base.journal import JournalEvent
from slipway.trainer.record.heartbeat import Beat

OF = ("training",)
STEP_BOUNDS = (0.01, 0.03, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
SAVE_BOUNDS = (0.1, 0.5, 1.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 900.0)
GAUGES = {
    "step": Metric("slipway_job_step", "gauge", "The last step that is done", OF),
    "loss": Metric("slipway_job_loss", "gauge", "Mean training loss of the last step, in nats", OF),
    "accuracy": Metric("slipway_job_accuracy_ratio", "gauge", "Share of right predictions in the last step", OF),
    "gradient_norm": Metric("slipway_job_gradient_norm", "gauge", "Norm of the last step's gradient", OF),
    "learning_rate": Metric("slipway_job_learning_rate", "gauge", "Learning rate of the last step", OF),
    "tokens_per_second": Metric("slipway_job_tokens_per_second", "gauge", "Tokens a second, over all ranks", OF),
    "samples_per_second": Metric("slipway_job_samples_per_second", "gauge", "Samples a second, over all ranks", OF),
    "flops_per_second": Metric("slipway_job_flops_per_second", "gauge", "Model FLOP a second, over all ranks", OF),
    "mfu": Metric("slipway_job_mfu_ratio", "gauge", "Model FLOP/s over the peak of all ranks' devices", OF),
    "samples": Metric("slipway_job_samples_total", "counter", "Samples since the training's first step", OF),
    "tokens": Metric("slipway_job_tokens_total", "counter", "Tokens since the training's first step", OF),
    "cpu_cores": Metric("slipway_job_cpu_cores", "gauge", "Busy cores of rank 0", OF),
    "cpu_wait": Metric("slipway_job_cpu_wait_ratio", "gauge", "Share of time in which rank 0 had no core", OF),
    "host_memory": Metric("slipway_job_host_memory_bytes", "gauge", "Memory of rank 0's process", OF),
    "host_memory_free_share": Metric("slipway_job_host_memory_free_ratio", "gauge", "Host memory that is left", OF),
    "gpu_use": Metric("slipway_job_gpu_use_ratio", "gauge", "Share of time with a kernel running on rank 0's GPU", OF),
    "gpu_memory": Metric("slipway_job_gpu_memory_bytes", "gauge", "Largest allocation so far on rank 0's GPU", OF),
    "gpu_memory_total": Metric("slipway_job_gpu_memory_size_bytes", "gauge", "Memory of rank 0's GPU", OF),
    "gpu_memory_retries": Metric(
        "slipway_job_gpu_memory_retries_total", "counter", "Allocations that first had to flush the cache", OF
    ),
}
"""By the field of a `step` event with the value. A field that the hardware does not provide has no sample."""
STEP_SECONDS = Metric("slipway_job_step_seconds", "histogram", "Seconds of each step", OF, STEP_BOUNDS)
COMMUNICATION_SECONDS = Metric(
    "slipway_job_communication_seconds",
    "histogram",
    "Seconds of each step that waited for other ranks",
    OF,
    STEP_BOUNDS,
)
SECTIONS = ("data", "forward", "backward", "optimizer", "communication", "checkpoint", "validation")
SECTION_SECONDS = Metric(
    "slipway_job_section_seconds_total", "counter", "Seconds of rank 0's steps by section", (*OF, "section")
)
PHASE_SECONDS = Metric(
    "slipway_job_phase_seconds_total", "counter", "Seconds of rank 0 by phase that is over", (*OF, "phase")
)
VALIDATION_LOSS = Metric("slipway_job_validation_loss", "gauge", "Loss of the last validation, in nats", OF)
BOUND = Metric("slipway_job_bound_ratio", "gauge", "What bounds the last window, and its share", (*OF, "bound"))
SAVE_SECONDS = Metric("slipway_job_checkpoint_save_seconds", "histogram", "Seconds of each save", OF, SAVE_BOUNDS)
BLOCKED_SECONDS = Metric(
    "slipway_job_checkpoint_blocked_seconds_total", "counter", "Seconds in which steps waited for saves", OF
)
SAVED_BYTES = Metric("slipway_job_checkpoint_bytes_total", "counter", "Bytes of checkpoints that were committed", OF)
SAVE_FAILURES = Metric("slipway_job_checkpoint_failures_total", "counter", "Saves that made no checkpoint", OF)
LOAD_SECONDS = Metric("slipway_job_checkpoint_load_seconds", "histogram", "Seconds of each restore", OF, SAVE_BOUNDS)
COPIES = Metric("slipway_job_copies_total", "counter", "Checkpoints that were copied to a tier", (*OF, "tier"))
COPY_FAILURES = Metric("slipway_job_copy_failures_total", "counter", "Copies to a tier that failed", (*OF, "tier"))
COPIED_BYTES = Metric("slipway_job_copied_bytes_total", "counter", "Bytes that were copied to a tier", (*OF, "tier"))
SKIPPED = Metric("slipway_job_skipped_batches_total", "counter", "Batches that were left out", OF)
SURVIVED = Metric("slipway_job_incidents_survived_total", "counter", "Incidents that the start survived", OF)
NOT_RECORDED = Metric("slipway_job_events_lost_total", "counter", "Events that found no room in the ledger", OF)
GENERATIONS = Metric("slipway_job_generations_total", "counter", "Times that all ranks have met", OF)
WORLD = Metric("slipway_job_ranks", "gauge", "Ranks that take part", OF)
RANK = (*OF, "node", "rank")
RANK_STEP = Metric("slipway_job_rank_step", "gauge", "The step that a rank is at", RANK)
RANK_PHASE = Metric("slipway_job_rank_phase", "gauge", "1 for the phase that a rank is in", (*RANK, "phase"))
RANK_STILL = Metric("slipway_job_rank_still_seconds", "gauge", "Seconds since the exporter last saw a rank move", RANK)
RANK_OWN = Metric(
    "slipway_job_rank_own_seconds", "gauge", "Median seconds of a rank's own work in its last steps", RANK
)
COUNTERS = (BLOCKED_SECONDS, SAVED_BYTES, SAVE_FAILURES, SKIPPED, SURVIVED, NOT_RECORDED, GENERATIONS)
HISTOGRAMS = (STEP_SECONDS, COMMUNICATION_SECONDS, SAVE_SECONDS, LOAD_SECONDS)
BY_LABEL = (SECTION_SECONDS, PHASE_SECONDS, COPIES, COPY_FAILURES, COPIED_BYTES)
JOB_METRICS = (
    *GAUGES.values(), *HISTOGRAMS, *COUNTERS, *BY_LABEL, VALIDATION_LOSS, BOUND, WORLD,
    RANK_STEP, RANK_PHASE, RANK_STILL, RANK_OWN,
)  # fmt: skip
"""All metrics of a job."""


class JobFigures:
    """The figures of one training, from its events so far."""

    def __init__(self, training: str) -> None:
        self.training = training
        self._gauges: dict[Metric, float] = {}
        self._counts: dict[Metric, float] = dict.fromkeys(COUNTERS, 0.0)
        self._sums: dict[tuple[Metric, str], float] = {}
        self._histograms = {metric: Distribution(metric.bounds) for metric in HISTOGRAMS}
        self._bound: tuple[str, float] | None = None
        self._phase: tuple[str, float] | None = None

    def add(self, events: Iterable[JournalEvent]) -> "JobFigures":
        """Add new events, in the order of the ledger; unknown events are ignored."""
        for event in events:
            if event["event"] in _TAKES:
                _TAKES[event["event"]](self, event)
        return self

    def expose(self, into: Exposition) -> None:
        """Add the samples."""
        of = self.training
        for metric, value in (*self._gauges.items(), *self._counts.items()):
            into.add(metric, value, of)
        for (metric, label), value in self._sums.items():
            into.add(metric, value, of, label)
        for metric, distribution in self._histograms.items():
            into.add(metric, distribution, of)
        if self._bound is not None:
            into.add(BOUND, self._bound[1], of, self._bound[0])

    def _sum(self, metric: Metric, label: str, value: float) -> None:
        self._sums[metric, label] = self._sums.get((metric, label), 0.0) + value

    def _step(self, event: JournalEvent) -> None:
        for name, metric in GAUGES.items():
            if isinstance(event.get(name), int | float):
                self._gauges[metric] = float(event[name])
        self._histograms[STEP_SECONDS].add(float(event["seconds"]))
        if "communication_seconds" in event:
            self._histograms[COMMUNICATION_SECONDS].add(float(event["communication_seconds"]))
        for section in SECTIONS:
            seconds = event.get(f"{section}_seconds")
            if seconds is not None:
                self._sum(SECTION_SECONDS, section, float(seconds))

    def _enter(self, event: JournalEvent) -> None:
        if self._phase is not None:
            self._sum(PHASE_SECONDS, self._phase[0], max(0.0, float(event["t"]) - self._phase[1]))
        self._phase = str(event["phase"]), float(event["t"])

    def _validated(self, event: JournalEvent) -> None:
        self._gauges[VALIDATION_LOSS] = float(event["loss"])

    def _bounded(self, event: JournalEvent) -> None:
        self._bound = str(event["bound"]), float(event["share"])

    def _new_generation(self, event: JournalEvent) -> None:
        self._counts[GENERATIONS] += 1
        self._gauges[WORLD] = float(event["world"])

    def _committed(self, event: JournalEvent) -> None:
        self._histograms[SAVE_SECONDS].add(float(event["seconds"]))
        self._counts[BLOCKED_SECONDS] += float(event.get("blocked_seconds", 0.0))
        self._counts[SAVED_BYTES] += float(event.get("bytes", 0))

    def _not_committed(self, event: JournalEvent) -> None:
        self._counts[SAVE_FAILURES] += 1

    def _restored(self, event: JournalEvent) -> None:
        self._histograms[LOAD_SECONDS].add(float(event["seconds"]))

    def _copied(self, event: JournalEvent) -> None:
        self._sum(COPIES, str(event["tier"]), 1)
        self._sum(COPIED_BYTES, str(event["tier"]), float(event.get("bytes", 0)))

    def _not_copied(self, event: JournalEvent) -> None:
        self._sum(COPY_FAILURES, str(event["tier"]), 1)

    def _skipped(self, event: JournalEvent) -> None:
        self._counts[SKIPPED] += 1

    def _survived(self, event: JournalEvent) -> None:
        self._counts[SURVIVED] += 1

    def _lost(self, event: JournalEvent) -> None:
        self._counts[NOT_RECORDED] += float(event["events"])


_TAKES = {
    "step": JobFigures._step,
    "phase": JobFigures._enter,
    "validated": JobFigures._validated,
    "bound": JobFigures._bounded,
    "met": JobFigures._new_generation,
    "committed": JobFigures._committed,
    "commit_failed": JobFigures._not_committed,
    "restored": JobFigures._restored,
    "replicated": JobFigures._copied,
    "replication_failed": JobFigures._not_copied,
    "skipped": JobFigures._skipped,
    "incident": JobFigures._survived,
    "not_recorded": JobFigures._lost,
}


def expose_ranks(into: Exposition, training: str, beats: Sequence[Beat], still: Mapping[int, float]) -> None:
    """Add the positions of ranks; `still` has the seconds for which each has made no progress."""
    for beat in beats:
        of = training, beat.node, beat.rank
        into.add(RANK_STEP, beat.step, *of)
        into.add(RANK_PHASE, 1, *of, beat.phase)
        into.add(RANK_STILL, still.get(beat.rank), *of)
        into.add(RANK_OWN, beat.own or None, *of)
