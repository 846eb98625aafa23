#!/usr/bin/env python3
"""Asks DuckDB, Polars and Spark for the aggregates of a Parquet dataset that SQLite computes from the trace, and runs
the queries of docs/scale.md in each.

    tests/truth/engines.py [--flowtrace BIN] [--engines duckdb,polars,spark] [--scratch DIR] TRACE…

Of every column of every view: rows, values, sum (of texts and of what is not a number, the sum of lengths), least and
greatest; of every view with machines the rows of each. Sums are taken in halves, so that none overflows. Everything
must be equal to the last digit; only sums of floating point numbers may differ by rounding. Traces are exported by
--flowtrace into one directory, and queries see one run of it at a time. What is not installed is said and left out, unless
FLOWTRACE_REQUIRE_ENGINES is set. Exit status 0: all equal.

    pip install duckdb polars pyspark      # and a Java, for Spark
"""
import argparse
import glob
import math
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
HALF = 1 << 16


class Sqlite:
    """The truth: the views of the trace."""

    def __init__(self, trace):
        self.db = sqlite3.connect(f"file:{trace}?mode=ro", uri=True)

    def views(self):
        # Names that begin otherwise are of the tables and of what only flowtrace uses.
        names = self.db.execute("SELECT name FROM sqlite_master WHERE type = 'view' ORDER BY name")
        return [name for (name,) in names]

    def columns(self, view):
        return [row[1] for row in self.db.execute(f"PRAGMA table_info({view})")]

    def aggregates(self, view, kinds):
        return plain_sql(lambda sql: self.db.execute(sql).fetchone(), view, kinds, "/")

    def of_machines(self, view):
        return dict(self.db.execute(f"SELECT host, COUNT(*) FROM {view} GROUP BY host"))

    def asked(self, sql):
        return self.db.execute(sql).fetchall()


def plain_sql(one, source, kinds, divide):
    """The same in every SQL, but for the division without remainder."""
    found = {}
    for column, kind in kinds.items():
        quoted = f'"{column}"' if divide != "div" else f"`{column}`"
        if kind == "integer":
            whole = f"{quoted} / {HALF}" if divide == "/" else f"{quoted} {divide} {HALF}"
            sums = f"SUM({whole}), SUM({quoted} % {HALF}), MIN({quoted}), MAX({quoted})"
        elif kind == "real":
            sums = f"SUM({quoted}), 0, MIN({quoted}), MAX({quoted})"
        else:
            length = "OCTET_LENGTH" if kind == "blob" and divide == "//" else "LENGTH"
            sums = f"SUM({length}({quoted})), 0, MIN({quoted}), MAX({quoted})"
        rows, values, high, low, least, greatest = one(f"SELECT COUNT(*), COUNT({quoted}), {sums} FROM {source}")
        found[column] = whole_sum(kind, rows, values, high, low, least, greatest)
    return found


def whole_sum(kind, rows, values, high, low, least, greatest):
    if high is None:
        return rows, values, None, least, greatest
    if kind == "integer":
        high = int(high) * HALF + int(low)
    return rows, values, high if kind == "real" else int(high), least, greatest


class DuckDb:
    name = "DuckDB"

    def __init__(self):
        import duckdb
        self.duckdb = duckdb

    def open(self, dataset, run):
        self.dataset, self.run = dataset, run
        self.db = self.duckdb.connect()

    def source(self, view):
        files = f"{self.dataset}/{view}/run={self.run}/**/*.parquet"
        return f"read_parquet('{files}', hive_partitioning = true)"

    def kinds(self, view):
        # Without what the directories say.
        files = glob.glob(f"{self.dataset}/{view}/run={self.run}/*/*.parquet")
        of = {"BIGINT": "integer", "DOUBLE": "real", "VARCHAR": "text", "BLOB": "blob"}
        rows = self.db.execute(f"DESCRIBE SELECT * FROM read_parquet('{files[0]}', hive_partitioning = false)").fetchall()
        return {row[0]: of[row[1]] for row in rows}

    def aggregates(self, view, kinds):
        return plain_sql(lambda sql: self.db.execute(sql).fetchone(), self.source(view), kinds, "//")

    def of_machines(self, view):
        return dict(self.db.execute(f"SELECT host, COUNT(*) FROM {self.source(view)} GROUP BY host").fetchall())

    def asked(self, text):
        return self.db.execute(text.replace("dataset/", self.dataset + "/")).fetchall()


class Polars:
    name = "Polars"

    def __init__(self):
        import polars
        self.polars = polars

    def open(self, dataset, run):
        self.dataset, self.run = dataset, run

    def scan(self, view):
        frame = self.polars.scan_parquet(f"{self.dataset}/{view}/", hive_partitioning=True)
        return frame.filter(self.polars.col("run") == int(self.run))

    def aggregates(self, view, kinds):
        pl = self.polars
        found, asked = {}, [pl.len().alias("rows")]
        for column, kind in kinds.items():
            c = pl.col(column)
            if kind == "integer":
                sums = [(c // HALF).sum(), (c % HALF).sum(), c.min(), c.max()]
            elif kind == "real":
                sums = [c.sum(), pl.lit(0), c.min(), c.max()]
            else:
                length = c.str.len_chars() if kind == "text" else c.bin.size()
                sums = [length.cast(pl.Int64).sum(), pl.lit(0), c.min(), c.max()]
            asked += [e.alias(f"{column}:{i}") for i, e in enumerate([c.count(), *sums])]
        row = self.scan(view).select(asked).collect().to_dicts()[0]
        for column, kind in kinds.items():
            values, high, low, least, greatest = (row[f"{column}:{i}"] for i in range(5))
            # Its sum of nothing is 0.
            high = None if values == 0 else high
            found[column] = whole_sum(kind, row["rows"], values, high, low, least, greatest)
        return found

    def of_machines(self, view):
        rows = self.scan(view).group_by("host").len().collect().rows()
        return {None if host == "__HIVE_DEFAULT_PARTITION__" else host: count for host, count in rows}

    def asked(self, text):
        names = {"print": lambda frame: names.update(result=frame.rows())}
        exec(text.replace("dataset/", self.dataset + "/"), names)
        return names["result"]


class Spark:
    name = "Spark"

    def __init__(self):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        from pyspark.sql import SparkSession
        # Sums that overflow, and the like, are errors and not other numbers.
        session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        session = session.config("spark.sql.ansi.enabled", "true").config("spark.driver.memory", "2g")
        self.spark = session.config("spark.sql.shuffle.partitions", "4").getOrCreate()
        self.spark.sparkContext.setLogLevel("ERROR")

    def open(self, dataset, run):
        self.dataset, self.run = dataset, run

    def view(self, view):
        base = f"{self.dataset}/{view}"
        frame = self.spark.read.option("basePath", base).parquet(f"{base}/run={self.run}")
        frame.createOrReplaceTempView(f"of_{view}")
        return f"of_{view}"

    def aggregates(self, view, kinds):
        # One query for all columns: each is a job of its own.
        asked = ["COUNT(*)"]
        for column, kind in kinds.items():
            c = f"`{column}`"
            sums = {"integer": (f"SUM({c} div {HALF})", f"SUM({c} % {HALF})"), "real": (f"SUM({c})", "0")}
            asked += [f"COUNT({c})", *sums.get(kind, (f"SUM(LENGTH({c}))", "0")), f"MIN({c})", f"MAX({c})"]
        rows, *rest = self.spark.sql(f"SELECT {', '.join(asked)} FROM {self.view(view)}").collect()[0]
        found = {}
        for at, (column, kind) in enumerate(kinds.items()):
            values, high, low, least, greatest = rest[at * 5:at * 5 + 5]
            least, greatest = (bytes(v) if isinstance(v, bytearray) else v for v in (least, greatest))
            found[column] = whole_sum(kind, rows, values, high, low, least, greatest)
        return found

    def of_machines(self, view):
        rows = self.spark.sql(f"SELECT host, COUNT(*) FROM {self.view(view)} GROUP BY host").collect()
        return {row[0]: row[1] for row in rows}

    def asked(self, text):
        text = text.replace('"dataset/', f'"{self.dataset}/').replace(".show()", ".collect()")
        *before, last = text.rsplit("\nspark.sql(", 1)
        names = {"spark": self.spark}
        exec("\n".join(before), names)
        return [tuple(row) for row in eval("spark.sql(" + last, names)]


def same(a, b, kind):
    if kind == "real" and a is not None and b is not None and not isinstance(a, tuple):
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)
    return a == b


def blocks():
    """The queries of docs/scale.md, in the order SQLite, DuckDB, Polars, Spark, question by question."""
    with open(f"{HERE}/../../docs/scale.md", encoding="utf-8") as text:
        section = text.read().split("## The same questions elsewhere", 1)[1].split("\n## ", 1)[0]
    found = re.findall(r"```(?:sql|python)\n(.*?)```", section, re.S)
    assert len(found) % 4 == 0, "a question without an answer in every engine"
    return [found[at:at + 4] for at in range(0, len(found), 4)]


def ordered(rows):
    return sorted((tuple(row) for row in rows), key=repr)


def compare(engine, sqlite, views, wrong):
    compared = 0
    for view, (kinds, truth, machines) in views.items():
        found = engine.aggregates(view, kinds)
        for column, kind in kinds.items():
            compared += 1
            parts = zip(truth[column], found[column])
            if not all(same(a, b, kind) for a, b in parts):
                wrong.append(f"{engine.name}: {view}.{column}: {found[column]} instead of {truth[column]}")
        if machines is not None:
            compared += 1
            # A view without rows is a part of no machine.
            here = {host: n for host, n in engine.of_machines(view).items() if n}
            if here != machines:
                wrong.append(f"{engine.name}: rows of machines of {view}: {here} instead of {machines}")
    return compared


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flowtrace", default=f"{HERE}/../../target/release/flowtrace")
    parser.add_argument("--engines", default="duckdb,polars,spark")
    parser.add_argument("--scratch")
    parser.add_argument("traces", nargs="+", metavar="TRACE")
    options = parser.parse_args()
    known = {"duckdb": DuckDb, "polars": Polars, "spark": Spark}
    engines = []
    for name in options.engines.split(","):
        try:
            engines.append(known[name]())
        except Exception as error:
            if os.environ.get("FLOWTRACE_REQUIRE_ENGINES"):
                raise
            print(f"left out: {name} ({str(error).splitlines()[0] if str(error) else type(error).__name__})")
    scratch = options.scratch or tempfile.mkdtemp(prefix="flowtrace-engines-")
    wrong = []
    kinds_by = DuckDb()
    try:
        for trace in options.traces:
            # The queries of the documentation know no run: a directory for each.
            dataset = f"{scratch}/{os.path.basename(trace)}.dataset"
            subprocess.run([options.flowtrace, "export", trace, "parquet", "-o", dataset], check=True)
            sqlite = Sqlite(trace)
            run = os.path.basename(glob.glob(f"{dataset}/runs/run=*")[0]).split("=", 1)[1]
            kinds_by.open(dataset, run)
            views, begin = {}, time.monotonic()
            for view in sorted(os.listdir(dataset)):
                kinds = kinds_by.kinds(view)
                columns = sqlite.columns(view)
                if sorted([*kinds, *(["host"] if "host" in columns else [])]) != sorted(columns):
                    wrong.append(f"{view} has {sorted(kinds)} instead of {sorted(columns)}")
                machines = sqlite.of_machines(view) if "host" in columns else None
                views[view] = kinds, sqlite.aggregates(view, kinds), machines
            rows = {view: next(iter(truth.values()))[0] for view, (_, truth, _) in views.items()}
            print(f"{trace}: {sum(rows.values())} rows of {len(views)} views, SQLite {time.monotonic() - begin:.1f} s")
            for engine in engines:
                begin = time.monotonic()
                engine.open(dataset, run)
                compared = compare(engine, sqlite, views, wrong)
                answers = 0
                for question in blocks():
                    truth = ordered(sqlite.asked(question[0]))
                    answer = ordered(engine.asked(question[1 + list(known).index(engine.name.lower())]))
                    answers += 1
                    if answer != truth:
                        wrong.append(f"{engine.name}: question {answers} of docs/scale.md: {answer[:3]} instead of {truth[:3]}")
                print(f"  {engine.name:<7} {compared} aggregates and {answers} questions compared, {time.monotonic() - begin:.1f} s")
            shutil.rmtree(dataset)
    finally:
        if not options.scratch:
            shutil.rmtree(scratch, ignore_errors=True)
    for line in wrong:
        print("WRONG", line)
    print("all equal" if not wrong else f"{len(wrong)} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
