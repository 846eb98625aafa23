"""Traces of flowtrace as pandas or polars frames.

>>> trace = flowtrace.open("trace.db")
>>> trace.processes.groupby("rule")["on_cpu_ns"].sum()

Times are nanoseconds since the start of the recording, sizes are bytes, unknown values are missing values.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

if TYPE_CHECKING:
    import pandas
    import polars

__all__ = ["Trace", "binary", "open"]

Frame = TypeVar("Frame")
_APPLICATION_ID = 0x464C5452  # of every trace: ASCII FLTR


class Trace(Generic[Frame]):
    """A trace, opened read-only. Each SQL view is an attribute, read from the file at each use."""

    runs: Frame
    processes: Frame
    files: Frame
    file_access: Frame
    calls: Frame
    channels: Frame
    channel_ends: Frame
    channel_traffic: Frame
    waits: Frame
    edges: Frame
    losses: Frame

    def __init__(self, path: str | os.PathLike[str], frame: Callable[[sqlite3.Connection, str, Sequence[Any]], Frame]):
        """Opens the trace at `path`; `frame` makes a frame of a connection, a statement and its parameters."""
        self.path = Path(path).absolute()
        self._frame = frame
        if not self.path.exists():
            raise FileNotFoundError(f"no trace {self.path}: record one with `flowtrace run -o {path} -- COMMAND`")
        self._connection = sqlite3.connect(self.path.as_uri() + "?mode=ro", uri=True)
        try:
            (application,) = self._connection.execute("PRAGMA application_id").fetchone()
        except sqlite3.DatabaseError:
            application = None
        if application != _APPLICATION_ID:
            self._connection.close()
            raise ValueError(f"{self.path} is not a trace of flowtrace")

    @property
    def views(self) -> list[str]:
        """Names of the SQL views, those that people need most first. docs/schema.md describes each column."""
        rows = self._connection.execute("SELECT name FROM sqlite_schema WHERE type = 'view' ORDER BY rowid")
        names = [name for (name,) in rows]
        first = [name for name in Trace.__annotations__ if name in names]
        return first + [name for name in names if name not in first]

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> Frame:
        """The result of one SELECT statement; `?` in it stands for the next of `parameters`."""
        return self._frame(self._connection, sql, parameters)

    def __getattr__(self, view: str) -> Frame:
        if view.startswith("_") or view not in self.views:
            raise AttributeError(f"a trace has no view {view}; it has {', '.join(Trace.__annotations__)} and others")
        return self.query(f"SELECT * FROM {view}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.views]

    def text(self, command: str, *options: str) -> str:
        """What `flowtrace COMMAND TRACE OPTION…` prints, such as `text("critical-path", "--what-if", "sort=0.5")`."""
        done = subprocess.run([binary(), command, str(self.path), *options], capture_output=True, text=True)
        if done.returncode > 1:  # 1: the answer has findings
            raise RuntimeError(done.stderr.strip())
        return done.stdout

    def json(self, command: str, *options: str) -> Any:
        """The same with exact numbers, for the commands that have `--json`."""
        return json.loads(self.text(command, *options, "--json"))

    def close(self) -> None:
        """Closes the file."""
        self._connection.close()

    def __enter__(self) -> Trace[Frame]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"flowtrace.open({str(self.path)!r})"


@overload
def open(path: str | os.PathLike[str] = ..., frames: Literal["pandas"] = ...) -> Trace[pandas.DataFrame]: ...
@overload
def open(path: str | os.PathLike[str], frames: Literal["polars"]) -> Trace[polars.DataFrame]: ...
@overload
def open(path: str | os.PathLike[str] = ..., *, frames: Literal["polars"]) -> Trace[polars.DataFrame]: ...
def open(path: str | os.PathLike[str] = "trace.db", frames: Literal["pandas", "polars"] = "pandas") -> Trace[Any]:
    """Opens a trace whose views are frames of pandas or polars."""
    return Trace(path, {"pandas": _pandas, "polars": _polars}[frames])


def _pandas(connection: sqlite3.Connection, sql: str, parameters: Sequence[Any]) -> pandas.DataFrame:
    import pandas

    # Columns with NULL stay integers: as floating-point numbers they would lose nanoseconds.
    return pandas.read_sql_query(sql, connection, params=tuple(parameters), dtype_backend="numpy_nullable")


def _polars(connection: sqlite3.Connection, sql: str, parameters: Sequence[Any]) -> polars.DataFrame:
    import polars

    cursor = connection.execute(sql, parameters)
    names = [column[0] for column in cursor.description]
    return polars.DataFrame(cursor.fetchall(), names, orient="row", infer_schema_length=None)


def binary() -> str:
    """The flowtrace binary: `$FLOWTRACE`, or else the first on `PATH`."""
    found = os.environ.get("FLOWTRACE") or shutil.which("flowtrace")
    if found is None:
        raise FileNotFoundError("no flowtrace on PATH: install it, or set FLOWTRACE to the path of the binary")
    return found


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext flowtrace` in IPython and Jupyter."""
    shell.register_magic_function(_magic, "line_cell", "flowtrace")


def _magic(line: str, cell: str | None = None) -> None:
    """`%flowtrace ARGUMENT…` runs flowtrace; `%%flowtrace run -o trace.db` traces the cell, a bash script."""
    arguments = shlex.split(line) + ([] if cell is None else ["--", "bash", "-c", cell])
    with subprocess.Popen(
        [binary(), *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        for output in process.stdout or ():
            print(output, end="")
    findings = process.returncode == 1 and arguments[:1] != ["run"]
    if process.returncode and not findings:
        raise subprocess.CalledProcessError(process.returncode, ["flowtrace", *arguments])
