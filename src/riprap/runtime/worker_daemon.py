"""The process that Spark's Python workers are forked from, with all loaded that they would load one by one.

spark.python.daemon.module = riprap.runtime.worker_daemon

To load Riprap takes a worker more than a second, each time one is started; a fork of a process that has it takes
milliseconds. Spark's own daemon loads nothing, for libraries may start threads, which a fork does not take along. Of
those here NumPy and Arrow do, and both see to it that a fork finds their locks and pools in order.
"""

from __future__ import annotations

import gc
import os

import numpy as np
from pyspark import daemon
from pyspark import worker as worker  # loaded, to be there

from riprap import application as application  # loaded, to be there
from riprap.machine_code.keeping import load_known
from riprap.runtime.resident import task as task  # loaded, to be there


def main() -> None:
    """Fork workers as Spark asks for them."""
    # Otherwise all workers would draw the same numbers.
    os.register_at_fork(after_in_child=np.random.seed)
    # Some 0.4 s, which a worker that takes the place of one that died need not spend.
    load_known()
    # What is loaded stays: a collection that looked at it would copy its memory into every worker.
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()
