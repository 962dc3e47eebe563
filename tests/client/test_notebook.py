"""The example of a notebook: its cells run, with a stand-in for IPython's cell magics."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from tests.support.lake import ALICE
from tests.support.service import Service

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebooks" / "sql.ipynb"
ROWS = pa.table({"region": ["eu", "us", "eu"], "amount": [1.0, 2.0, 4.0]})


class Notebook:
    """Runs cells as a kernel does: the value of the last expression is a cell's result."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: dict[str, Any] = {}
        self._magics: dict[str, Callable[[str, str], Any]] = {}
        magic = ModuleType("IPython.core.magic")
        magic.register_cell_magic = lambda made: self._magics.setdefault(made.__name__, made)  # type: ignore[attr-defined]
        for name, module in (("IPython", ModuleType("IPython")), ("IPython.core", ModuleType("core"))):
            monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setitem(sys.modules, "IPython.core.magic", magic)

    def run(self, source: str) -> Any:
        if source.startswith("%%"):
            line, _, cell = source.removeprefix("%%").partition("\n")
            name, _, rest = line.partition(" ")
            return self._magics[name](rest, cell)
        *before, last = ast.parse(source).body
        exec(compile(ast.Module(before, []), "cell", "exec"), self.names)
        if isinstance(last, ast.Expr):
            return eval(compile(ast.Expression(last.value), "cell", "eval"), self.names)
        exec(compile(ast.Module([last], []), "cell", "exec"), self.names)
        return None


def test_the_cells_of_the_notebook_run(served: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("duckdb")
    monkeypatch.setenv("LAKEWARDEN_URI", served.url)
    monkeypatch.setenv("LAKEWARDEN_TOKEN", served.token(ALICE))
    served.iceberg().create_namespace("sales")
    served.iceberg().create_table("sales.orders", ROWS.schema).append(ROWS)
    cells = [each for each in json.loads(NOTEBOOK.read_text("utf-8"))["cells"] if each["cell_type"] == "code"]
    notebook = Notebook(monkeypatch)
    results = [notebook.run("".join(each["source"])) for each in cells]
    assert results[0] == ["sales.orders"]
    assert "amount" in str(results[1])
    assert results[-2].to_dict("records") == [
        {"region": "eu", "orders": 2, "amount": 5.0},
        {"region": "us", "orders": 1, "amount": 2.0},
    ]
    assert results[-1].item() == 5.0
    assert not any(each["outputs"] for each in cells), "The notebook has outputs: clear them before a commit."
