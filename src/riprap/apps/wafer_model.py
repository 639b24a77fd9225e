"""Predict the yield of wafers with models that learn from every wafer: first predict, then learn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import pyarrow as pa

import riprap as rr

PREDICTION_SCHEMA = pa.schema(
    [
        ("wafer", pa.int64()),
        ("lot", pa.int64()),
        ("product", pa.string()),
        ("measured", pa.float64()),
        ("predicted", pa.float64()),
    ]
)
LEARNING_RATE = 0.003
_AS_FAR_AS = 3.0


def require_river() -> None:
    """Refuse to go on without the library of the models."""
    if find_spec("river") is None:
        raise rr.GraphError("wafer needs the library of its models: pip install 'riprap[models]'")


def tame(readings: dict[int, float]) -> dict[int, float]:
    """Bring wild readings, in standard deviations, back to where others are.

    >>> tame({0: -0.5, 7: 40.0})
    {0: -0.5, 7: 3.0}
    """
    return {sensor: min(max(value, -_AS_FAR_AS), _AS_FAR_AS) for sensor, value in readings.items()}


def new_model() -> Any:
    """Make a model that knows nothing yet: a linear regression of the standardised readings, by gradient descent."""
    from river.compose import FuncTransformer
    from river.linear_model import LinearRegression
    from river.optim import SGD
    from river.preprocessing import StandardScaler, TargetStandardScaler

    line = LinearRegression(SGD(LEARNING_RATE), intercept_lr=LEARNING_RATE)
    return StandardScaler() | FuncTransformer(tame) | TargetStandardScaler(regressor=line)


@dataclass
class Learned:
    """What has been learned: a model for each product of which a wafer was measured."""

    models: dict[str, Any] = field(default_factory=dict)

    def take(self, product: str, sensors: Sequence[float | None], measured: float | None) -> float | None:
        """Predict the yield of a wafer, then learn from what was measured. A new product has no prediction."""
        # A sensor without a reading is left out, which the model takes for its mean.
        readings = {number: value for number, value in enumerate(sensors) if value is not None}
        model = self.models.get(product)
        predicted = None if model is None else float(model.predict_one(readings))
        if measured is not None:
            if model is None:
                model = self.models[product] = new_model()
            model.learn_one(readings, measured)
        return predicted


class Predict(rr.CustomOperator):
    """Put out each wafer with the yield that was predicted for it before its own was known."""

    state: Learned

    def process(self, port: int | str, batch: pa.RecordBatch) -> None:
        wafers = (batch.column(name).to_pylist() for name in ("product", "sensors", "measured"))
        predicted = [self.state.take(*wafer) for wafer in zip(*wafers, strict=True)]
        columns = [batch.column(name) for name in PREDICTION_SCHEMA.names[:-1]]
        columns += [pa.array(predicted, pa.float64())]
        self.submit(pa.table(columns, schema=PREDICTION_SCHEMA), rows=range(batch.num_rows))
