"""The direction of imports: a layer may import itself and the layers before it.

The files are parsed, not imported, so an import inside a function counts as well as one at the top.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "riprap"

# "riprap" stands for the public namespace, riprap/__init__.py: what is written as users would write it may
# import it, what it is made of may not.
LAYERS = (
    "errors",
    "arrays",
    "ownership",
    "cache",
    "machine_code",
    "durations",
    "intervals",
    "windows",
    "expressions",
    "protection",
    "state",
    "kernels",
    "graph",
    "operators",
    "application",
    "drawing",
    "san",
    "channels",
    "adapters",
    "stage",
    "feeds",
    "compiler",
    "runtime",
    "riprap",
    "faults",
    "model",
    "testing",
    "apps",
    "cli",
    "__main__",
)
# The one step from a description to its effect, `Application.run`, imports the runtime when it is called; its options
# say what a session is. A connector says how it is opened, and imports that when it is.
DOORS = {
    Path("graph/connectors/memory.py"): "riprap.adapters",
    Path("graph/connectors/postgres.py"): "riprap.adapters",
    Path("graph/connectors/redis.py"): "riprap.adapters",
    Path("graph/connectors/sqlite.py"): "riprap.adapters",
    Path("graph/connectors/spark.py"): "riprap.runtime.kafka",
    Path("graph/connectors/tcp.py"): "riprap.adapters",
    Path("application.py"): "riprap.runtime",
    Path("graph/options.py"): "pyspark.sql.SparkSession",
}
WITHOUT_SPARK = LAYERS[: LAYERS.index("compiler")]
# Faults and models are computed in memory, with the stage's own code. These spread them over Spark, or run the
# application itself for comparison.
WITHOUT_RUNTIME = ("faults", "model")
ON_SPARK = (Path("faults/jobs.py"), Path("faults/streaming_time.py"), Path("model/spark_replications.py"))


def imported_modules(tree: ast.Module, package: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Yield the line and the full dotted name of everything a module inside ``package`` imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            start = ".".join((*base, *((node.module,) if node.module else ())))
            # "from riprap import graph" imports riprap.graph; a name that is no module does no harm here.
            yield from ((node.lineno, f"{start}.{alias.name}") for alias in node.names)


def layer_of(dotted: str) -> str | None:
    """Return the layer a dotted name belongs to: "riprap" for names of its own, None outside the package."""
    first, _, rest = dotted.partition(".")
    if first != "riprap":
        return None
    layer = rest.partition(".")[0]
    return layer if layer in LAYERS else "riprap"


def offences(package: Path) -> list[str]:
    """List every import under ``package`` that points the wrong way, as ``file:line: what``."""
    found = []
    for file in sorted(package.rglob("*.py")):
        inside = file.relative_to(package)
        if inside == Path("__init__.py"):
            continue
        layer = inside.parts[0].removesuffix(".py")
        if layer not in LAYERS:
            found.append(f"{inside}: riprap.{layer} is in no layer; add it to LAYERS in test_imports.py")
            continue
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for line, dotted in imported_modules(tree, ("riprap", *inside.parts[:-1])):
            target = layer_of(dotted)
            if inside in DOORS and dotted.startswith(DOORS[inside]):
                continue
            if target is not None and LAYERS.index(target) > LAYERS.index(layer):
                found.append(f"{inside}:{line}: {layer} imports {dotted}, of the later layer {target}")
            if layer in WITHOUT_SPARK and dotted.partition(".")[0] == "pyspark":
                found.append(f"{inside}:{line}: {layer} imports {dotted}; only compiler and later may")
            if layer in WITHOUT_RUNTIME and target == "runtime" and inside not in ON_SPARK:
                found.append(f"{inside}:{line}: {layer} imports {dotted}; of it only what ON_SPARK lists may")
    return found


def test_imports_point_to_earlier_layers() -> None:
    found = offences(PACKAGE)
    assert not found, "imports in the wrong direction:\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("file", "source", "expected"),
    [
        ("graph/node.py", "from riprap.errors import RiprapError", None),
        ("graph/node.py", "from . import window", None),
        ("graph/node.py", "import pyarrow", None),
        ("graph/node.py", "import riprap.runtime.java", "graph imports riprap.runtime.java"),
        ("graph/node.py", "from riprap import compiler", "graph imports riprap.compiler"),
        ("graph/node.py", "from ..operators.join import Join", "graph imports riprap.operators.join.Join"),
        ("graph/node.py", "import riprap as rr", "of the later layer riprap"),
        ("graph/node.py", "def run():\n    from ..runtime import start", "node.py:2: graph imports riprap"),
        ("state/pages.py", "from pyspark.sql import SparkSession", "only compiler and later may"),
        ("kernels/sums.py", "import riprap.state.pages", None),
        ("state/pages.py", "import riprap.kernels.sums", "of the later layer kernels"),
        ("errors.py", "from .graph import node", "errors imports riprap.graph.node"),
        ("compiler/lower.py", "import pyspark", None),
        ("faults/replay.py", "from riprap.runtime.task import run_task", "only what ON_SPARK lists may"),
        ("faults/replay.py", "from riprap.stage.batch import compute", None),
        ("faults/jobs.py", "from riprap.runtime.session import make_session", None),
        ("apps/bargain.py", "import riprap as rr\nfrom riprap import Application", None),
        ("leftovers.py", "", "riprap.leftovers is in no layer"),
        ("__init__.py", "from riprap.cli import main", None),
    ],
)
def test_the_check_sees(tmp_path: Path, file: str, source: str, expected: str | None) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(source)

    found = offences(tmp_path)

    if expected is None:
        assert found == []
    else:
        assert len(found) == 1
        assert expected in found[0]


def test_importing_riprap_does_not_import_pyspark() -> None:
    """Nor do fault injection, models, all that they compute with, and what users test with."""
    program = (
        "import sys, riprap, riprap.faults.campaign_run, riprap.model.watched_ports; "
        "loaded = {'pyspark', 'riprap.runtime'} & set(sys.modules); assert not loaded, loaded"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# Builds, checks, draws and lays out an application, and computes nothing.
DESCRIBED = """
import sys, riprap as rr
from riprap.compiler import compile_graph, explain
from riprap.drawing import draw_svg, draw_text
app = rr.Application("described")
rows = app.source("rows", rr.rows([{"k": 1, "v": 2}], "k bigint, v bigint"))
old = app.functor("old", rows, variables={"seen": "0"}, update="seen + 1 as seen", select="k, v, seen", by="k")
sums = app.aggregate("sums", rows, by="k", window=rr.sliding(tuples=3), select="sum(v) as s")
windows = (rr.sliding(tuples=2), rr.sliding(tuples=2))
both = app.join("both", old, sums, by="k", windows=windows, select="old.v as v, s")
app.sink("out", both, rr.memory())
print(draw_text(app.graph()), draw_svg(app.graph()), explain(compile_graph(app.graph(), buckets=2, tasks=1)))
loaded = {"numba", "llvmlite", "pyspark"} & set(sys.modules)
assert not loaded, loaded
"""


def test_describing_an_application_does_not_import_numba() -> None:
    """Functions are compiled when one is first called."""
    done = subprocess.run([sys.executable, "-c", DESCRIBED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
