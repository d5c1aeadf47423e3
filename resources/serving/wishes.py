"""Serving requests: what a person, an asset or a sensor wants to serve for a model.

Each request is a create-only record after the newest one. If two people make one at the same time, one of them gets an
error.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Literal

from slipway.serving.records import ServedState, ServedVersion, ServingRecords, ServingWish, SwitchPolicy


class NotServed(ValueError):
    """A request that cannot be accepted; the message says why."""


def check(want: Literal["serve", "back", "stop"], version: int | None, percent: float) -> None:
    """Raises NotServed for a contradictory request, or for an impossible share."""
    if want != "serve" and version:
        raise NotServed(f"found version {version} beside {want}, expected one of the two")
    if want != "serve" and percent != 100:
        raise NotServed(f"found a share of {percent:g} % beside {want}, expected one of the two")
    if not 0 < percent <= 100:
        raise NotServed(f"percent: found {percent:g}, expected above 0 and 100 at most")


def serve(
    records: ServingRecords,
    model: str,
    version: ServedVersion,
    policy: SwitchPolicy,
    follows: bool,
    by: str,
    why: str,
) -> ServedState:
    """Request a version, with the policy's share of the traffic until the verdict. Idempotent.

    This ends a switch in progress: the version from before it goes on serving. Raises NotServed.
    """
    if not 0 < policy.share <= 1:
        raise NotServed(f"share: found {policy.share:g}, expected above 0 and 1 at most")
    state = records.state(model)
    wish = ServingWish("serve", by, why, version, state.settled, follows, policy)
    earlier = state.desired
    tried = earlier is not None and (earlier.version, earlier.follows, earlier.policy) == (version, follows, policy)
    if tried and not (state.verdict is not None and state.verdict.outcome == "back"):
        return state
    return _wish(records, state, wish)


def stop(records: ServingRecords, model: str, by: str, why: str) -> ServedState:
    """Request the end of serving: running requests are answered, and then no more. Raises NotServed."""
    state = records.state(model)
    if state.desired is None or (state.desired.want == "stop" and not state.desired.follows):
        return state
    return _wish(records, state, ServingWish("stop", by, why))


def withdraw(records: ServingRecords, model: str, gone: Collection[str], by: str, why: str) -> ServedState:
    """Withdraw the checkpoints `gone` from serving. Another serving version, or the one being switched to, gets all.

    If none is left, nothing serves until there is another champion (if champions are followed). Raises NotServed.
    """
    state = records.state(model)
    wish = state.desired
    present = [version for version in (state.coming, state.settled) if version is not None]
    if wish is None or not any(version.checkpoint in gone for version in present):
        return state
    remaining = [version for version in present if version.checkpoint not in gone]
    if not remaining:
        return _wish(records, state, ServingWish("stop", by, why, follows=wish.follows, policy=wish.policy))
    before = state.settled if state.settled in remaining else None
    return _wish(records, state, ServingWish("serve", by, why, remaining[0], before, wish.follows, wish.policy))


def back(
    records: ServingRecords,
    model: str,
    by: str,
    why: str,
    refusal: Callable[[ServedVersion], str] = lambda version: "",
) -> ServedState:
    """Request the former version at once, and stop following champions. Raises NotServed if there is none.

    During a switch, the former version is the one from before the switch. `refusal` says why a version may not serve
    again; such a version is skipped.
    """
    state = records.state(model)
    now = state.settled
    if state.coming is not None and state.coming != now:
        former = [now] if now else []
    else:
        former = [version for version in reversed(list(settled(records, model))) if version != now]
    goal = next((version for version in former if not refusal(version)), None)
    if goal is None:
        reason = refusal(former[0]) if former else "no other version has answered before"
        raise NotServed(f"model {model}: {reason}")
    return _wish(records, state, ServingWish("serve", by, why, goal, now, False, SwitchPolicy()))


def settled(records: ServingRecords, model: str) -> Iterator[ServedVersion]:
    """The versions that have had all of the traffic, in their order."""
    for wish, verdict in records.history(model):
        if wish.version is not None and verdict is not None and verdict.outcome == "all":
            yield wish.version


def _wish(records: ServingRecords, state: ServedState, wish: ServingWish) -> ServedState:
    if not records.wish(state, wish):
        raise NotServed(f"model {state.model}: somebody else has just made a request; check the state, and try again")
    return records.state(state.model)
