#!/usr/bin/env python3
"""same_graph.py DOT GRAPHML GML CYJS    exports of one graph, read by networkx (DOT by gvpr of Graphviz, where it
is installed): the same nodes, edges and attributes in all, and no cycle. Prints what there is."""
import json
import shutil
import subprocess
import sys

import networkx

dot, graphml, gml, cyjs = sys.argv[1:]
# What the reader makes of a node itself.
OWN = {"id", "name", "value", "label", "key", "source", "target", "caption"}


def plain(graph, key):
    """Nodes and edges with their attributes as texts; numbers over 2^53 are texts in some formats anyway."""
    def facts(attributes):
        return tuple(sorted((name.replace("_", ""), str(value)) for name, value in attributes.items() if name not in OWN))
    nodes = {key(node, attributes): facts(attributes) for node, attributes in graph.nodes(data=True)}
    name = {node: key(node, attributes) for node, attributes in graph.nodes(data=True)}
    edges = sorted((name[a], name[b], facts(attributes)) for a, b, attributes in graph.edges(data=True))
    return nodes, edges


def compare(what, one, other):
    if one[0].keys() != other[0].keys():
        sys.exit(f"{what}: other nodes: {sorted(one[0].keys() ^ other[0].keys())[:5]}")
    if len(one[1]) != len(other[1]):
        sys.exit(f"{what}: {len(one[1])} edges, not {len(other[1])}")
    for node in one[0]:
        if one[0][node] != other[0][node]:
            sys.exit(f"{what}: {node}: {sorted(set(one[0][node]) ^ set(other[0][node]))[:6]}")
    for a, b in zip(one[1], other[1]):
        if a != b:
            sys.exit(f"{what}: edge {a[:2]} {b[:2]}: {sorted(set(a[2]) ^ set(b[2]))[:6]}")


by_graphml = networkx.read_graphml(graphml)
one = plain(by_graphml, lambda node, _: node)
compare("GML", plain(networkx.read_gml(gml, label="id"), lambda _, a: a["label"]), one)
with open(cyjs) as file:
    compare("Cytoscape", plain(networkx.cytoscape_graph(json.load(file)), lambda node, _: node), one)
if shutil.which("gvpr"):
    program = 'N { printf("n %s\\n", $.name) } E { printf("e %s %s\\n", $.tail.name, $.head.name) }'
    lines = subprocess.run(["gvpr", program, dot], capture_output=True, text=True, check=True).stdout.splitlines()
    nodes = {line.split()[1] for line in lines if line[0] == "n"}
    edges = sorted(tuple(line.split()[1:]) for line in lines if line[0] == "e")
    if nodes != set(one[0]) or edges != sorted(edge[:2] for edge in one[1]):
        sys.exit("DOT: other nodes or edges")
if not networkx.is_directed_acyclic_graph(by_graphml):
    sys.exit("a cycle")
print(f"{len(one[0])} nodes, {len(one[1])} edges, acyclic")
