"""The package on a new trace of a small workflow, recorded by the binary."""

import re
import subprocess
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas
import polars
import pytest
from IPython.core.interactiveshell import InteractiveShell

import flowtrace

ROOT = Path(__file__).parents[2]
WORKFLOW = "seq 1000 | sort -n > numbers; wc -l < numbers > count"


@pytest.fixture(scope="session")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("run")
    record = [flowtrace.binary(), "run", "--quiet", "-o", "trace.db", "--", "bash", "-c", WORKFLOW]
    subprocess.run(record, cwd=directory, check=True)
    return directory / "trace.db"


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "flowtrace")
    yield shell
    InteractiveShell.clear_instance()


def test_every_view_is_a_frame_of_both_libraries(path: Path) -> None:
    with flowtrace.open(path) as trace, flowtrace.open(path, "polars") as same:
        assert trace.views[:3] == ["runs", "processes", "files"] and len(trace.views) > 30
        assert set(trace.views) <= set(dir(trace))
        for view in trace.views:
            assert not hasattr(flowtrace.Trace, view), view
            a, b = getattr(trace, view), getattr(same, view)
            assert isinstance(a, pandas.DataFrame) and isinstance(b, polars.DataFrame)
            assert (a.shape, list(a.columns)) == (b.shape, b.columns), view
        assert {"seq", "sort", "wc"} <= set(trace.processes["rule"])
        assert {"seq", "sort", "wc"} <= set(same.processes["rule"])


def test_integers_with_null_are_exact(path: Path) -> None:
    sql = "SELECT ? AS n UNION ALL SELECT NULL"
    assert flowtrace.open(path).query(sql, [2**60 + 1])["n"].dropna().tolist() == [2**60 + 1]
    assert flowtrace.open(path, "polars").query(sql, [2**60 + 1])["n"].to_list() == [2**60 + 1, None]


def test_commands_answer_in_text_and_json(path: Path) -> None:
    trace = flowtrace.open(path)
    assert "critical path" in trace.text("summary")
    assert isinstance(trace.json("critical-path"), dict)
    with pytest.raises(RuntimeError, match="--no-such-option"):
        trace.text("summary", "--no-such-option")


def test_errors_name_what_is_wrong(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AttributeError, match="no view proceses; it has runs, processes"):
        flowtrace.open(path).proceses
    with pytest.raises(FileNotFoundError, match="flowtrace run -o"):
        flowtrace.open(tmp_path / "none.db")
    (tmp_path / "text").write_text("no database")
    with pytest.raises(ValueError, match="text is not a trace"):
        flowtrace.open(tmp_path / "text")
    monkeypatch.delenv("FLOWTRACE", raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(FileNotFoundError, match="set FLOWTRACE"):
        flowtrace.binary()


def test_the_magic_traces_a_cell(
    shell: InteractiveShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shell.run_cell_magic("flowtrace", "run --quiet -o 'of cell.db'", "seq 3 | tail -n 1 > 'a b'")
    assert (tmp_path / "a b").read_text() == "3\n"
    assert "tail" in set(flowtrace.open("of cell.db").processes["rule"])
    shell.run_line_magic("flowtrace", "query 'of cell.db' 'SELECT 6 * 7'")
    assert "42" in capsys.readouterr().out
    with pytest.raises(subprocess.CalledProcessError):
        shell.run_cell_magic("flowtrace", "run --quiet --force -o 'of cell.db'", "exit 1")


def test_the_examples_of_the_documentation_run(shell: InteractiveShell, path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(path.parent)
    for code in re.findall(r"```python\n(.*?)```", (ROOT / "docs/python.md").read_text(), re.DOTALL):
        shell.run_cell(code).raise_error()


def test_package_and_binary_have_one_version() -> None:
    done = subprocess.run([flowtrace.binary(), "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.split()[1] == version("flowtrace")
