"""peers.py TRACE: networkx builds the graph of a trace, pandas computes the table of calls."""
import resource
import sqlite3
import sys
import time


def report(name, begin, result):
    seconds = time.perf_counter() - begin[0]
    cpu = time.process_time() - begin[1]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{name:>14}  {seconds:>6.2f} s  {cpu:>6.2f} s  {peak:>4.0f} MiB  {result}")


def now():
    return time.perf_counter(), time.process_time()


import networkx
import pandas

db = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
begin = now()
graph = networkx.DiGraph()
for src_kind, src, dst_kind, dst, kind, moved in db.execute(
        "SELECT src_kind, src_id, dst_kind, dst_id, kind, bytes FROM edges"):
    graph.add_edge(src_kind[0] + str(src), dst_kind[0] + str(dst), kind=kind, bytes=moved)
networkx.is_directed_acyclic_graph(graph)
report("networkx dag", begin, f"{len(graph)} nodes, {graph.size()} edges, of the view edges")
begin = now()
calls = pandas.read_sql("SELECT op, duration_ns, result FROM calls", db)
table = calls.groupby("op").duration_ns.agg(["count", "sum", "mean", "std", "max"])
table = table.join(calls.groupby("op").duration_ns.quantile([0.5, 0.95, 0.99]).unstack())
report("pandas calls", begin, f"{len(table)} operations")
