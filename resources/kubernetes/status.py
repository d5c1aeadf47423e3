"""Where a job stands, from its order, what its workload says and what its pods say. Pure.

The workload decides whether and how it ended, the pods tell why and where. A pod whose node does not answer may say
that it runs for ever: it is not waited for once its grace is over. The fence keeps what may still run there from harm.
"""

from collections.abc import Collection, Iterable, Sequence

from resources.kubernetes.orders import Order
from resources.kubernetes.pod_facts import LOSSES, PodFacts
from resources.kubernetes.workloads.protocol import Reading
from resources.launcher.protocol import State, Status


def of(order: Order, reading: Reading | None, pods: Sequence[PodFacts], dark: Collection[str], now: float) -> Status:
    """The status at `now`, seconds since the epoch; `dark` are those of the pods' nodes that are gone or not ready.

    What a job that does not run yet waits for is said elsewhere.
    """
    stranded = [pod for pod in pods if is_overdue(pod, now) and pod.node in dark]
    open_pods = [pod for pod in pods if not pod.is_over and pod not in stranded]
    if order.cancellation:
        return _cancelled(order, reading, pods, stranded, open_pods)
    if reading is None and not open_pods:
        return Status(State.MISSING)
    if reading is None:
        return _live(order, State.RUNNING, "its workload is gone, and its pods are ending", pods, stranded)
    ending = _ending(reading, pods, stranded, open_pods)
    if ending is not None:
        return _ended(order, ending, reading, pods, stranded)
    if any(pod.started_at for pod in pods):
        return _live(order, State.RUNNING, _losses(stranded), pods, stranded)
    return _live(order, State.PENDING, reading.reason, pods, stranded)


def is_overdue(pod: PodFacts, now: float) -> bool:
    """Whether it should be gone by now, and is not."""
    return not pod.is_over and pod.doomed_at is not None and now > pod.doomed_at


def _ending(
    reading: Reading, pods: Sequence[PodFacts], stranded: Sequence[PodFacts], open_pods: Sequence[PodFacts]
) -> State | None:
    """How the job ended; None while it may run: not all kinds wait for their pods, and some for stranded ones too."""
    if open_pods or not (stranded or reading.state.terminal):
        return None
    end = reading.state if reading.state.terminal else reading.ending or State.FAILED
    # What obeys a SIGTERM exits with 0, and has not done what it was to do.
    return State.FAILED if any(pod.disruption for pod in pods) else end


def _cancelled(
    order: Order,
    reading: Reading | None,
    pods: Sequence[PodFacts],
    stranded: Sequence[PodFacts],
    open_pods: Sequence[PodFacts],
) -> Status:
    """A cancelled job ends when its workload is gone, and with it what could start pods, and then its pods are."""
    assert order.cancellation
    if open_pods or reading is not None:
        nodes = sorted({pod.node for pod in open_pods if pod.node})
        where = f" on {', '.join(nodes)}" if nodes else ""
        state = State.RUNNING if any(pod.started_at for pod in open_pods) else State.PENDING
        return _live(order, state, f"cancelled, and ending{where}", pods, stranded)
    return Status(
        State.STOPPED,
        "; ".join(filter(None, ["cancelled", _losses(stranded)])),
        nodes=_nodes(pods),
        lost_nodes=_lost(pods, stranded),
        submitted_at=order.submitted_at,
        started_at=_started_at(pods, None),
        ended_at=order.cancellation.at,
    )


def _live(order: Order, state: State, reason: str, pods: Sequence[PodFacts], stranded: Sequence[PodFacts]) -> Status:
    started_at = _started_at(pods, None)
    return Status(state, reason, _nodes(pods), _lost(pods, stranded), False, order.submitted_at, started_at)


def _ended(
    order: Order, state: State, reading: Reading, pods: Sequence[PodFacts], stranded: Sequence[PodFacts]
) -> Status:
    failed = state is State.FAILED
    return Status(
        state,
        (_accounts(pods, stranded) or reading.reason) if failed else "",
        nodes=_nodes(pods),
        lost_nodes=_lost(pods, stranded) if failed else (),
        disrupted=failed and bool(reading.disrupted or stranded or any(pod.disruption for pod in pods)),
        submitted_at=order.submitted_at,
        started_at=_started_at(pods, reading),
        ended_at=reading.ended_at,
    )


def _accounts(pods: Sequence[PodFacts], stranded: Sequence[PodFacts]) -> str:
    """What the pods that ended badly say; those that were ended because of them have nothing to add."""
    told = [pod for pod in pods if pod.account and pod not in stranded]
    own = [pod for pod in told if pod.doomed_at is None or pod.disruption]
    accounts = [pod.account for pod in own or ([] if stranded else told)]
    return "; ".join(dict.fromkeys(filter(None, [*accounts, _losses(stranded)])))


def _losses(stranded: Iterable[PodFacts]) -> str:
    return "; ".join(f"{node} was lost: it does not answer, and may run what it ran" for node in _nodes(stranded))


def _lost(pods: Iterable[PodFacts], stranded: Iterable[PodFacts]) -> tuple[str, ...]:
    return _nodes([*(pod for pod in pods if pod.disruption in LOSSES), *stranded])


def _nodes(pods: Iterable[PodFacts]) -> tuple[str, ...]:
    """Where they are or were, by name."""
    return tuple(sorted({pod.node for pod in pods if pod.node}))


def _started_at(pods: Iterable[PodFacts], reading: Reading | None) -> float | None:
    """When the first of the pods did; they may be gone, and then when the workload says."""
    starts = [pod.started_at for pod in pods if pod.started_at]
    return min(starts) if starts else reading.started_at if reading else None
