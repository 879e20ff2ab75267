"""Checks that a graph is one a backend can price. Run on every lowering in the tests; names the first illegal node."""

from collections.abc import Mapping

import numpy as np

from inferometer.graph.layout import Layout, Step, neighbours, reshard_plans
from inferometer.graph.ops import (
    Choice,
    CollectiveKind,
    Column,
    Graph,
    Item,
    Message,
    OpKind,
    Plan,
    Traffic,
    Work,
    unwrapped,
)
from inferometer.specs.deployment import ROLES
from inferometer.specs.formats import FORMATS

DTYPES = frozenset(dtype for fmt in FORMATS.values() for dtype in fmt.compute)
"""Every arithmetic type that a format can feed."""

GRAPH_ROLES = frozenset({*ROLES, "stage"} - {"r"})
"""Roles that exchange messages; replicas share none."""

SLACK = 1e-9
"""Relative: counts are products of divisions, and may miss one by a few last bits."""


class VerifyError(AssertionError):
    """A graph that no backend should see: an error of ours, not of the input."""


def verify(graph: Graph) -> None:
    """Check every node of a graph.

    Counts and bytes are finite and not negative, dtypes, kinds and roles known, replication is at least 1, Choices have
    plans with distinct names, the shares of an op split over contexts add up to 1, and each segment has the edges
    of every residual layout. Raises VerifyError, which names the first illegal node.
    """
    if not graph.residuals or not graph.segments:
        raise VerifyError("graph: no segments or no residual layouts")
    for segment in graph.segments:
        if set(segment.edges) != set(graph.residuals):
            raise VerifyError(f"{segment.name}: edges {sorted(segment.edges)}, layouts {sorted(graph.residuals)}")
        _nodes(segment.nodes, segment.name)
        for residual, nodes in segment.edges.items():
            _nodes(nodes, f"{segment.name}[{residual}]")


def verify_reshard(source: Layout, target: Layout, joint: str) -> None:
    """Check that every plan of `reshard_plans` starts at `source`, takes legal steps and can end at `target`.

    Raises VerifyError, which names the first plan that does not.
    """
    for plan in reshard_plans(source, target, joint):
        reached = _freely({source}, joint)
        for step in plan:
            reached = _freely(_taken(reached, step, joint), joint)
        if target not in reached:
            raise VerifyError(f"{source} -> {target}: {[(s.kind, s.role) for s in plan]} does not end there")


def _taken(states: set[Layout], step: Step, joint: str) -> set[Layout]:
    return {reached for state in states for found, reached in neighbours(state, joint) if found == step}


def _freely(states: set[Layout], joint: str) -> set[Layout]:
    """Return every layout reached from `states` by free slices."""
    found = set(states)
    queue = list(states)
    while queue:
        for step, reached in neighbours(queue.pop(), joint):
            if step is None and reached not in found:
                found.add(reached)
                queue.append(reached)
    return found


def _nodes(items: tuple[Item, ...], where: str) -> None:
    shares: dict[str, float] = {}
    for node in unwrapped(items):
        here = f"{where}/{node.name}"
        if isinstance(node, Work):
            _work(node, here)
            if node.share != 1.0:
                shares[node.name] = shares.get(node.name, 0.0) + node.share
        elif isinstance(node, Message):
            _message(node, here)
        else:
            _choice(node, here)
    for name, share in shares.items():
        if abs(share - 1.0) > SLACK:
            raise VerifyError(f"{where}/{name}: shares over contexts add up to {share}")


def _work(node: Work, where: str) -> None:
    if not isinstance(node.kind, OpKind):
        raise VerifyError(f"{where}: unknown op kind {node.kind!r}")
    if node.dtype not in DTYPES:
        raise VerifyError(f"{where}: unknown dtype {node.dtype!r}")
    if not node.traffic_bytes or not set(node.traffic_bytes) <= set(Traffic):
        raise VerifyError(f"{where}: unknown or no traffic {list(node.traffic_bytes)}")
    columns: Mapping[str, Column] = {"flops": node.flops, **{f"{k} bytes": v for k, v in node.traffic_bytes.items()}}
    for name, column in columns.items():
        _counts(column, f"{where}: {name}", 0.0)
    _counts(node.replication, f"{where}: replication", 1.0 - SLACK)
    if not 0 < node.share <= 1:
        raise VerifyError(f"{where}: share {node.share}")


def _message(node: Message, where: str) -> None:
    if not isinstance(node.kind, CollectiveKind):
        raise VerifyError(f"{where}: unknown collective {node.kind!r}")
    if node.role not in GRAPH_ROLES:
        raise VerifyError(f"{where}: unknown role {node.role!r}")
    _counts(node.message_bytes, f"{where}: message bytes", 0.0)


def _choice(node: Choice, where: str) -> None:
    names = [plan.name for plan in node.plans]
    if not names:
        raise VerifyError(f"{where}: no plans")
    if len(set(names)) != len(names):
        raise VerifyError(f"{where}: two plans of one name in {names}")
    for plan in node.plans:
        _plan(plan, f"{where}={plan.name}")


def _plan(plan: Plan, where: str) -> None:
    if plan.legal is not None and plan.legal.dtype != np.bool_:
        raise VerifyError(f"{where}: a mask of {plan.legal.dtype}")
    _nodes(plan.nodes, where)


def _counts(column: Column, where: str, least: float) -> None:
    values = np.asarray(column)
    if not np.isfinite(values).all() or (values < least).any():
        raise VerifyError(f"{where} must be finite and at least {least:g}, got {float(values.min())}")
