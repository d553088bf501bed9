"""The policies of a run in words: one line per hop."""

from __future__ import annotations

import math

from hpcgcn.exchange.codecs import BitsCodec
from hpcgcn.exchange.policies import Policies
from hpcgcn.exchange.types import Policy

WORDS = {"forward": "features", "backward": "gradients"}


def hop_lines(policies: Policies) -> list[str]:
    """What happens at each hop; nothing where all hops are exact."""
    exchanges = [(hop, direction, policies(hop.number, direction))
                 for hop, direction in policies.exchanges()]
    if all(policy.exact for _, _, policy in exchanges):
        return []
    lines = []
    for hop in policies.hops:
        said: dict[str, list[str]] = {}
        for there, direction, policy in exchanges:
            if there is hop:
                said.setdefault(in_words(policy), []).append(WORDS[direction])
        sent = ", h W is sent" if hop.narrow else ""
        lines.append(f"hop {hop.number} ({hop.width} wide{sent}): "
                     + "; ".join(f"{' and '.join(of)} {how}" for how, of in said.items()))
    return lines


def in_words(policy: Policy) -> str:
    """When and how one exchange's rows are used."""
    parts = ["one epoch stale" if policy.staleness else "synchronous"]
    if policy.refresh_every:
        parts.append(f"fresh every {policy.refresh_every} epochs")
    if policy.stale_error < math.inf:
        parts.append(f"fresh after a drift above {policy.stale_error:g}")
    if policy.smoothing:
        parts.append(f"smoothed by {policy.smoothing:g}")
    low, high = policy.rate.extremes()
    rate = f"{low:g}" if low == high else f"{policy.rate.rate(0):g}, moving"
    if isinstance(policy.codec, BitsCodec):
        parts.append(f"{rate} bits")
    elif policy.codec.name == "adaptive":
        parts.append(f"{rate} bits on average, by row")
    elif policy.codec.name in ("subset", "nodes"):
        parts.append(f"{policy.codec.name} at ratio {rate}")
    else:
        parts.append(policy.codec.name)
    if policy.residual and policy.change_threshold:
        parts.append(f"rows that changed by {policy.change_threshold:g} or more")
    return ", ".join(parts)


def idle_staleness(policies: Policies) -> str:
    """A note if staleness was asked for and no hop has it; or ""."""
    stale = [policies(hop.number, direction).staleness for hop, direction in policies.exchanges()]
    if not policies.settings.is_stale() or not stale or any(stale):
        return ""
    return (f"staleness = '{policies.config.staleness}' leaves nothing stale: every hop of this "
            f"model is left out, so this is as synchronous as method = 'overlap' "
            f"(staleness = '1' makes all hops stale)")
