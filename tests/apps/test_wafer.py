"""Wafer yield: what is put out is what a plain loop that predicts and learns puts out."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from river import compose, linear_model, optim, preprocessing
from tests.stages import Stage

import riprap as rr
from riprap.apps import wafer_model
from riprap.apps.catalogue import CATALOGUE
from riprap.apps.wafer import wafer
from riprap.apps.wafer_feed import LOT, SENSORS, WAFER_SCHEMA, make_wafers, write_wafers
from riprap.apps.wafer_secom import read_secom
from riprap.testing import forget_instances

REAL = Path(__file__).parents[2].parent / "shared" / "data" / "secom" / "secom_raw_1547x590.csv.gz"
Row = dict[str, Any]


def loop(wafers: Sequence[Row]) -> list[Row]:
    """Predict, then learn, wafer after wafer."""
    models: dict[str, Any] = {}
    found = []
    for row in wafers:
        x = {n: v for n, v in enumerate(row["sensors"]) if v is not None}
        model = models.get(row["product"])
        predicted = model.predict_one(x) if model is not None else None
        if row["measured"] is not None:
            if model is None:
                model = models[row["product"]] = (
                    preprocessing.StandardScaler()
                    | compose.FuncTransformer(lambda x: {k: max(-3.0, min(3.0, v)) for k, v in x.items()})
                    | preprocessing.TargetStandardScaler(
                        linear_model.LinearRegression(optim.SGD(0.003), intercept_lr=0.003)
                    )
                )
            model.learn_one(x, row["measured"])
        found.append({n: row[n] for n in ("wafer", "lot", "product", "measured")} | {"predicted": predicted})
    return found


def lots_of(predictions: Sequence[Row]) -> list[Row]:
    """Tell the error of every lot but the last."""
    known = [p for p in predictions if p["measured"] is not None and p["predicted"] is not None]
    rows = []
    for lot, group in groupby(known, key=lambda p: p["lot"]):
        of_it = list(group)
        size = len(of_it)
        errors = [p["predicted"] - p["measured"] for p in of_it]
        rows.append(
            {
                "lot": lot,
                "product": of_it[0]["product"],
                "wafers": size,
                "measured": math.fsum(p["measured"] for p in of_it) / size,
                "predicted": math.fsum(p["predicted"] for p in of_it) / size,
                "error": math.sqrt(math.fsum(e * e for e in errors) / size),
            }
        )
    return rows[:-1]


def run(table: pa.Table, ends: Sequence[int] = (), *, fresh: bool = False) -> dict[str, list[Row]]:
    """Return what reaches the sinks if the feed is cut into batches; with ``fresh`` each is another process's."""
    app = wafer(rr.rows(table), rr.memory(), predictions=rr.memory())
    found: dict[str, list[Row]] = {"Sink": [], "Predictions": []}
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(app, Path(folder), buckets=4)
        for low, high in pairwise([0, *ends, table.num_rows]):
            if fresh:
                forget_instances()
            for sink, rows in stage.feed({"Source": table.slice(low, high - low)}).items():
                found[sink] += rows
    return found


@pytest.mark.parametrize(("ends", "fresh"), [((), False), ((1, 49, 50, 260), False), ((77, 78, 301), True)])
def test_the_application_is_a_loop(ends: Sequence[int], fresh: bool) -> None:
    table = make_wafers(400, seed=5)
    predictions = loop(table.to_pylist())
    found = run(table, ends, fresh=fresh)
    assert found["Predictions"] == predictions
    assert found["Sink"] == lots_of(predictions)
    assert len(found["Sink"]) == 7


def test_readings_that_are_no_numbers_are_missing_ones() -> None:
    table = make_wafers(120, seed=5)
    rows = table.to_pylist()
    clean = [dict(r) for r in rows]
    for number, bad in ((3, math.nan), (70, math.inf), (71, -math.inf)):
        rows[number]["sensors"] = [bad, *rows[number]["sensors"][1:]]
        clean[number]["sensors"] = [None, *rows[number]["sensors"][1:]]
        rows[number + 10]["measured"], clean[number + 10]["measured"] = bad, None
    rows[90]["product"] = rows[91]["sensors"] = None
    found = run(pa.Table.from_pylist(rows, WAFER_SCHEMA), (80,))
    assert found["Predictions"] == loop(clean[:90] + clean[92:])


def test_a_product_that_is_new_has_no_prediction() -> None:
    table = make_wafers(1_000, seed=5)
    found = run(table, (333,))["Predictions"]
    measured: set[str] = set()
    for row in found:
        assert (row["predicted"] is None) == (row["product"] not in measured)
        if row["measured"] is not None:
            measured.add(row["product"])
    assert len(measured) > 2


def test_the_model_is_alone_in_its_element() -> None:
    app = wafer(rr.rows(WAFER_SCHEMA.empty_table()), rr.memory(), protect=rr.checkpoint(every="1s"))
    assert app.graph()["Model"].protect == rr.checkpoint(every="1s")
    plain = wafer(rr.rows(WAFER_SCHEMA.empty_table()), rr.memory())
    with tempfile.TemporaryDirectory() as folder:
        elements = Stage(plain, Path(folder)).layout.plans
    assert [p.name for p in elements] == ["wafer", "model", "quality"]
    assert elements[1].restart == "live"


def test_the_setting_makes_a_policy() -> None:
    app = CATALOGUE["wafer"].make(None, rr.memory(), settings={"checkpoint": "250ms"})
    assert app.graph()["Model"].protect == rr.checkpoint(every=0.25)


def test_without_its_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wafer_model, "find_spec", lambda name: None)
    with pytest.raises(rr.GraphError, match=r"pip install 'riprap\[models\]'"):
        wafer(rr.rows(WAFER_SCHEMA.empty_table()), rr.memory())


def test_a_feed_is_the_beginning_of_a_longer_one(tmp_path: Path) -> None:
    long = make_wafers(LOT * 100 + 130, seed=3)
    assert make_wafers(777, seed=3) == long.slice(0, 777)
    assert make_wafers(777, seed=4) != long.slice(0, 777)
    assert make_wafers(0) == WAFER_SCHEMA.empty_table()
    heard: list[int] = []
    write_wafers(tmp_path, LOT * 100 + 130, seed=3, progress=heard.append)
    assert heard == [LOT * 100, LOT * 100 + 130]
    feed = CATALOGUE["wafer"].open_feed(str(tmp_path), None)
    assert feed.schema.names == WAFER_SCHEMA.names
    with pytest.raises(FileExistsError):
        write_wafers(tmp_path, 1)


def test_sensors_are_as_the_page_says() -> None:
    table = make_wafers(5_000, seed=1)
    sensors = np.array(table["sensors"].to_pylist(), dtype=np.float64).reshape(-1, SENSORS)
    gone = np.isnan(sensors)
    assert 0.025 < gone.mean() < 0.05
    assert (gone.mean(axis=0) > 0.3).sum() == 3
    middle = np.nanmedian(sensors, axis=0)
    spread = 1.4826 * np.nanmedian(np.abs(sensors - middle), axis=0)
    assert 0.004 < (np.abs(sensors - middle) > 10 * spread)[~gone].mean() < 0.012
    assert table["lot"].to_pylist() == [n // LOT + 1 for n in range(5_000)]
    measured = table["measured"].drop_null().to_numpy()
    assert 0 <= measured.min() < measured.max() <= 100
    assert 6 < measured.std() < 12


def write_csv(path: Path, wafers: int = 60, sensors: int = 6) -> np.ndarray[Any, Any]:
    draw = np.random.default_rng(1)
    values = draw.normal(size=(wafers, sensors)).round(4)
    values[:, 2] = 7.0
    lines = ["row,timestamp,label," + ",".join(f"sensor_{n}" for n in range(sensors))]
    for number, row in enumerate(values.tolist()):
        cells = ["" if number % 5 == 0 and n == 3 else str(v) for n, v in enumerate(row)]
        lines.append(f"{number},2008-07-19 12:{number:02d}:00,-1," + ",".join(cells))
    path.write_text("\n".join(lines))
    return values


def test_real_wafers_are_read_in_the_same_shape(tmp_path: Path) -> None:
    path = tmp_path / "secom.csv"
    values = write_csv(path)
    table = read_secom(path, stand_in=1, sensors=2, lot=25)
    assert table.schema == WAFER_SCHEMA
    # Sensor 1 is what was measured, 2 never changes, and 3 lacks a fifth of its readings. Of 0, 4 and 5, two are taken.
    assert table["sensors"].to_pylist() == values[:, [0, 4]].tolist()
    assert table["measured"].to_pylist() == values[:, 1].tolist()
    assert table["lot"].to_pylist() == [1] * 25 + [2] * 25 + [3] * 10
    gaps = read_secom(path, stand_in=3, sensors=1)["measured"]
    assert [n for n, v in enumerate(gaps.to_pylist()) if v is None] == list(range(0, 60, 5))


@pytest.mark.parametrize(
    ("change", "options", "said"),
    [
        (("sensor_1,", "sensor_x,"), {"stand_in": 1}, "no column sensor_1; it has 5 sensors"),
        (("timestamp", "when"), {"stand_in": 1}, "no column timestamp"),
        (("7.0", "broken"), {"stand_in": 1}, "column sensor_2 is not of numbers"),
        (("7.0", "7.0,8"), {"stand_in": 1}, "cannot be read"),
        (("", ""), {"stand_in": 1}, "60 sensors are asked for, and 3 can be used"),
    ],
)
def test_what_is_not_secom_is_refused(
    tmp_path: Path, change: tuple[str, str], options: dict[str, int], said: str
) -> None:
    path = tmp_path / "secom.csv"
    write_csv(path)
    path.write_text(path.read_text().replace(*change) if change[0] else path.read_text())
    with pytest.raises(ValueError, match=said):
        read_secom(path, **options)


def test_a_feed_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(rr.GraphError, match="does not exist"):
        CATALOGUE["wafer"].make(tmp_path / "none.csv.gz", rr.memory())
    write_csv(tmp_path / "secom.csv")
    with pytest.raises(rr.GraphError, match=r"no column sensor_103.*docs/wafer-yield.md"):
        CATALOGUE["wafer"].make(tmp_path / "secom.csv", rr.memory())
    table = make_wafers(10)
    pq.write_table(table.drop_columns("lot"), tmp_path / "lacks.parquet")
    with pytest.raises(rr.GraphError, match="lacks lot bigint"):
        CATALOGUE["wafer"].make(tmp_path / "lacks.parquet", rr.memory())
    other = table.set_column(4, "sensors", pa.array(["1 2 3"] * 10))
    pq.write_table(other, tmp_path / "other.parquet")
    with pytest.raises(rr.GraphError, match="column sensors is string, not array<double>"):
        CATALOGUE["wafer"].make(tmp_path / "other.parquet", rr.memory())


def test_real_wafers_give_what_a_loop_gives() -> None:
    if not REAL.exists():
        pytest.skip(f"{REAL} is not here: real wafers are no part of the repository")
    table = read_secom(REAL)
    predictions = loop(table.to_pylist())
    found = run(table, (400, 401, 1200))
    assert found["Predictions"] == predictions
    assert found["Sink"] == lots_of(predictions)
    assert (table.num_rows, len(found["Sink"])) == (1547, 61)
    # It learns something: it is better than the mean of what came before.
    known = [(p["measured"], p["predicted"]) for p in predictions if p["measured"] is not None]
    measured = np.array([m for m, _ in known])
    means = np.cumsum(measured)[:-1] / np.arange(1, len(measured))
    model = np.array([p for _, p in known][1:], dtype=float)
    assert np.mean((model - measured[1:]) ** 2) < 0.8 * np.mean((means - measured[1:]) ** 2)
