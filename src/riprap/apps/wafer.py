"""Wafer yield: predict it from the readings of sensors, and tell lot by lot how good the predictions were.

See docs/wafer-yield.md.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import riprap as rr
from riprap.apps.wafer_model import PREDICTION_SCHEMA, Predict, require_river
from riprap.graph.connectors import SinkConnector, SourceConnector
from riprap.graph.graph import Restart
from riprap.protection import Policy


def finite(values: pa.Array) -> pa.Array:
    """Make values that are no numbers, or infinite, missing ones."""
    return pc.if_else(pc.is_finite(values), values, None)


def all_finite(sensors: pa.Array) -> pa.Array:
    """Do so in lists.

    >>> all_finite(pa.array([[1.0, float("nan")], None, [None, float("inf")]])).to_pylist()
    [[1.0, None], None, [None, None]]
    """
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), _ends(sensors)])
    return pa.ListArray.from_arrays(offsets, finite(sensors.flatten()), mask=sensors.is_null())


def _ends(lists: pa.Array) -> pa.Array:
    """Return where each list ends when all are laid end to end; null is as long as an empty one."""
    return pc.cumulative_sum(pc.fill_null(pc.list_value_length(lists), 0)).cast(pa.int32())


def wafer(
    feed: str | Path | SourceConnector,
    out: SinkConnector,
    *,
    rate: float | None = None,
    protect: Policy | None = None,
    restart: Restart = "live",
    predictions: SinkConnector | None = None,
    process: str | None = None,
) -> rr.Application:
    """Describe wafer yield: a row for every lot, once the next one begins, with the error of its predictions.

    ``protect`` is the policy of the operator that learns, which is alone in its processing element: when that fails,
    the others go on, and what they send it meanwhile is lost, unless ``restart`` is "resume". ``predictions`` gets
    every wafer with its prediction. ``rate`` replays the files of a path as so many wafers a second. ``process`` names
    a driver process for the model, so that it can die alone.
    """
    require_river()
    app = rr.Application("wafer")
    app.function("finite", finite, returns="double")
    app.function("all_finite", all_finite, returns="array<double>")
    connector = rr.files(feed, rate=rate) if isinstance(feed, str | Path) else feed
    source = app.source("Source", connector, position="wafer")
    wafers = app.functor(
        "Clean", source, where="product is not null and sensors is not null",
        select="wafer, lot, product, all_finite(sensors) as sensors, finite(measured) as measured",
    )  # fmt: skip
    predicted = app.custom("Model", Predict, wafers, schema=PREDICTION_SCHEMA, protect=protect)
    assert isinstance(predicted, rr.Stream)
    errors = app.functor(
        "Error", predicted, where="measured is not null and predicted is not null",
        select="lot, product, measured, predicted, predicted - measured as error",
    )  # fmt: skip
    lots = app.aggregate(
        "Lots", errors, window=rr.tumbling(delta=0, on="lot"),
        select="first(lot) as lot, first(product) as product, count(*) as wafers, avg(measured) as measured, "
        "avg(predicted) as predicted, avg(error * error) as squared_error",
    )  # fmt: skip
    quality = app.functor(
        "Quality", lots, select="lot, product, wafers, measured, predicted, sqrt(squared_error) as error"
    )
    app.sink("Sink", quality, out)
    beyond: list[rr.Stream | str] = [errors, lots, quality, "Sink"]
    if predictions is not None:
        app.sink("Predictions", predicted, predictions)
        beyond.append("Predictions")
    app.place("model", predicted, restart=restart, process=process)
    app.place("quality", *beyond)
    return app
