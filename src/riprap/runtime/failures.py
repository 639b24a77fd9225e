"""Find Riprap's own error inside what Spark made of it on its way through the JVM."""

from __future__ import annotations

import re

from riprap import errors
from riprap.errors import RiprapError, RunError
from riprap.runtime.java import JavaNotFoundError

_OURS = re.compile(
    r"riprap\.errors\.(\w+): (.+?)(?=\n\s*\n|\n\s*at |\nCaused by|\nDriver stacktrace|\nJVM stacktrace|\Z)",
    re.S,
)
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_LONG = 4000


def as_riprap_error(error: BaseException) -> RiprapError:
    """Map any failure of a query to the Riprap error that caused it, or to a RunError that quotes it."""
    if isinstance(error, RiprapError):
        return error
    text = str(error)
    ours = _OURS.findall(text)
    if ours:
        name, message = ours[-1]
        return named_error(name, message.strip())
    missing = _NO_MODULE.search(text)
    if missing:
        return RunError(
            f"Spark's Python workers have no module '{missing[1]}'. Install it for the Python that they run on "
            "(spark.pyspark.python or PYSPARK_PYTHON say which), on every host; or leave out spark=, and Riprap makes "
            "a session whose workers have what this process has"
        )
    return RunError(f"the Spark query failed: {text[:_LONG]}")


def named_error(name: str, text: str) -> RiprapError:
    """Make the error of a name that came as text, out of the JVM or of another process."""
    kind = JavaNotFoundError if name == JavaNotFoundError.__name__ else getattr(errors, name, RunError)
    if isinstance(kind, type) and issubclass(kind, RiprapError):
        return kind(text)
    return RunError(text)
