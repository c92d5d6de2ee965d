"""Reading, reducing and writing the graph of paths. It is reduced to the nodes that have hosts."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onionlab.errors import UserError
from onionlab.tornet.path_graph import Path, PathGraph, PathNode, graph_bytes, read_path_graph

from .tiny import ATLAS_NODES, atlas


def read(text: str, *keep: int) -> PathGraph:
    return read_path_graph([text.encode()], "a.gml", keep)


def test_nodes_and_the_paths_between_them() -> None:
    graph = read(atlas(), 3, 7)
    assert graph.nodes == {
        number: PathNode(f"node {number}", "DE", 50_000_000, 100_000_000) for number in (3, 7)
    }
    assert graph.paths == {
        (3, 3): Path(303_000, 0, 0.0025),
        (3, 7): Path(307_000, 0, 0.0025),
        (7, 7): Path(707_000, 0, 0.0025),
    }
    assert (graph.nodes_read, graph.edges_read) == (5, 15)


def test_the_canonical_form() -> None:
    text = graph_bytes(read(atlas(), 7)).decode()
    assert text == (
        'graph [\n  directed 0\n  node [\n    id 7\n    label "node 7"\n    country_code "DE"\n'
        '    host_bandwidth_up "50000000 bit"\n    host_bandwidth_down "100000000 bit"\n  ]\n'
        '  edge [\n    source 7\n    target 7\n    latency "707 us"\n    packet_loss 0.0025\n  ]\n'
        "]\n"
    )


def test_the_order_of_the_file_plays_no_part() -> None:
    other = atlas(ATLAS_NODES[::-1]).splitlines()
    edges = other[other.index("  edge [") : -1]
    nodes = other[2 : other.index("  edge [")]
    # In the other file the edges precede the nodes, and source and target are exchanged.
    swapped = [
        line.replace("source", "x").replace("target", "source").replace("x", "target")
        for line in edges
    ]
    text = "\n".join(["Creator 7", "", "# made up", *other[:2], *swapped, *nodes, "]"])
    assert graph_bytes(read(text, 3, 7)) == graph_bytes(read(atlas(), 3, 7))


FAULTS = [
    ("    source 7\n    target 3\n", "    source 9\n    target 1\n", "3 to 7"),
    ("    source 7\n    target 7\n", "    source 9\n    target 1\n", "7 to 7"),
    ("    source 9\n    target 7\n", "    source 7\n    target 3\n", "duplicate edge"),
    ("    id 9\n", "    id 7\n", "duplicate id 7"),
    ("    id 7\n", "    id 8\n", "are missing, such as 7"),
    ('"307 us"', "5.5", "expected a time with its unit"),
    ('"307 us"', '"5.5 ms"', "expected a time of Shadow"),
    ('    latency "307 us"\n', "", "latency is missing"),
    ('"307 us"', '"0 us"', "expected more than 0"),
    ('"307 us"\n    packet_loss 0.0025', '"307 us"\n    packet_loss 2', "share"),
    (
        '"node 7"\n',
        '"node 7"\n    host_bandwidth_down "fast"\n  ]\n  node [\n    id 8\n',
        "host_bandwidth_down: expected a bandwidth",
    ),
    ("    id 7\n", '    id "seven"\n', "id: expected a whole number"),
    ("    source 7\n    target", "    source 7 target", "a.gml:65: unsupported GML"),
    ('    label "node 7"', "    id 7", "unsupported GML"),
    ('    label "node 7"', "    graphics [", "unsupported GML"),
    ("  edge [\n    source 9", "  hierarchic 1\n  edge [\n    source 9", "unsupported GML"),
    ("  ]\n]\n", "  ]\n", "inside the graph"),
    ("  ]\n]\n", "  ]\n]\nnode [\n", "unsupported GML"),
    ("graph [", "grape [", "a.gml:1: unsupported GML"),
    ("directed 0", "directed 1", "a.gml:1: graph is directed: paths that differ by direction"),
    ('"node 5"', '"' + "5" * 70_000 + '"', "longer than 65536 bytes"),
]


@pytest.mark.parametrize(("old", "new", "message"), FAULTS)
def test_each_fault_is_reported(old: str, new: str, message: str) -> None:
    text = atlas()
    assert old in text
    with pytest.raises(UserError, match=message) as refused:
        read(text.replace(old, new, 1) if old != "  ]\n]\n" else text.replace(old, new), 3, 7)
    assert refused.value.message.startswith("a.gml")
    assert refused.value.hint


def test_text_in_another_encoding_is_reported() -> None:
    with pytest.raises(UserError, match=r"a\.gml:2: not text in UTF-8"):
        read_path_graph([b"graph [\n", b"\xff\n"], "a.gml", [])


names = st.text("abc 1.2-", min_size=1, max_size=8)
rates = st.none() | st.integers(1, 10**12)


@st.composite
def graphs(draw: st.DrawFn) -> PathGraph:
    """Draw a complete graph."""
    ids = draw(st.lists(st.integers(0, 10**9), unique=True, min_size=1, max_size=5))
    nodes = {
        i: draw(st.builds(PathNode, st.none() | names, st.none() | names, rates, rates))
        for i in ids
    }
    path = st.builds(Path, st.integers(1, 10**12), st.integers(0, 10**9), st.floats(0, 1))
    pairs = [(a, b) for a in ids for b in ids if a <= b]
    return PathGraph(nodes, {p: draw(path) for p in pairs}, len(ids), len(pairs))


@given(graphs())
def test_written_data_is_read_back(graph: PathGraph) -> None:
    text = graph_bytes(graph)
    assert read(text.decode(), *graph.nodes) == graph
    assert graph_bytes(read(text.decode(), *graph.nodes)) == text


@given(graphs(), st.data())
def test_a_cut_keeps_exactly_the_paths_between_kept_nodes(
    graph: PathGraph, data: st.DataObject
) -> None:
    keep = data.draw(st.sets(st.sampled_from(sorted(graph.nodes)), min_size=1))
    cut = read(graph_bytes(graph).decode(), *keep)
    assert cut.nodes == {number: graph.nodes[number] for number in cut.nodes}
    assert set(cut.nodes) == keep
    assert cut.paths == {p: path for p, path in graph.paths.items() if set(p) <= keep}


@given(st.data())
def test_damaged_graphs_are_read_or_refused(data: st.DataObject) -> None:
    text = atlas().encode()
    begin = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(begin, min(len(text), begin + 200)))
    damaged = text[:begin] + data.draw(st.binary(max_size=20)) + text[end:]
    with contextlib.suppress(UserError):
        graph = read_path_graph([damaged], "a.gml", {3, 7})
        assert set(graph.nodes) == {3, 7}
