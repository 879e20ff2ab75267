"""The verifier names the first illegal node, and passes what the blocks make."""

from dataclasses import replace

import numpy as np
import pytest

from inferometer.graph.ops import Choice, CollectiveKind, Graph, Message, OpKind, Plan, Segment, Traffic, Work
from inferometer.graph.verify import VerifyError, verify

WORK = Work(
    name="gemm",
    kind=OpKind.GEMM,
    dtype="bf16",
    flops=np.array([[2.0, 4.0]]),
    traffic_bytes={Traffic.WEIGHTS: np.array([[8.0]])},
    replication=np.ones(()),
    shape="[1, 1] x [1, 1]",
)
MESSAGE = Message(name="sum", kind=CollectiveKind.ALL_REDUCE, role="tp", message_bytes=np.array([[1.0]]))


def graph(*nodes, edges=()):
    return Graph(segments=(Segment(name="layer", nodes=nodes, edges={"replicated": edges}),), residuals=("replicated",))


def choice(*plans):
    return Choice(name="way", plans=tuple(Plan(name=n, nodes=nodes) for n, nodes in plans))


def test_a_legal_graph_passes():
    verify(graph(WORK, MESSAGE, choice(("a", (WORK,)), ("b", ()))))


def test_shares_over_contexts_may_split_an_op():
    verify(graph(replace(WORK, share=0.25), replace(WORK, share=0.75)))


ILLEGAL = {
    "negative flops": replace(WORK, flops=np.array([[1.0, -1.0]])),
    "infinite flops": replace(WORK, flops=np.array([[np.inf]])),
    "nan bytes": replace(WORK, traffic_bytes={Traffic.KV: np.array([[np.nan]])}),
    "negative bytes": replace(WORK, traffic_bytes={Traffic.KV: np.array([[-1.0]])}),
    "no traffic": replace(WORK, traffic_bytes={}),
    "unknown traffic": replace(WORK, traffic_bytes={"smoke": np.ones(())}),
    "unknown dtype": replace(WORK, dtype="fp7"),
    "unknown kind": replace(WORK, kind="guess"),
    "useful over issued": replace(WORK, replication=np.array(0.5)),
    "no share": replace(WORK, share=0.0),
    "shares short of one": replace(WORK, share=0.5),
    "unknown role": replace(MESSAGE, role="replica"),
    "replicas share nothing": replace(MESSAGE, role="r"),
    "unknown collective": replace(MESSAGE, kind="shout"),
    "negative message": replace(MESSAGE, message_bytes=np.array([[-1.0]])),
    "no plans": choice(),
    "two plans of one name": choice(("a", ()), ("a", ())),
    "a float for a mask": Choice(name="way", plans=(Plan(name="a", nodes=(), legal=np.ones((1, 1))),)),
}


@pytest.mark.parametrize("what", ILLEGAL)
@pytest.mark.parametrize("where", ["nodes", "edges", "plan"])
def test_an_illegal_node_is_named(what, where):
    node = ILLEGAL[what]
    bad = {
        "nodes": graph(WORK, node),
        "edges": graph(WORK, edges=(node,)),
        "plan": graph(choice(("fine", ()), ("bad", (node,)))),
    }
    with pytest.raises(VerifyError, match=f"layer.*{node.name}"):
        verify(bad[where])


def test_a_segment_without_the_edges_of_a_layout_is_refused():
    short = Graph(segments=graph(WORK).segments, residuals=("replicated", "sequence"))
    with pytest.raises(VerifyError, match="layer: edges"):
        verify(short)


def test_an_empty_graph_is_refused():
    with pytest.raises(VerifyError, match="graph"):
        verify(Graph(segments=(), residuals=("replicated",)))
