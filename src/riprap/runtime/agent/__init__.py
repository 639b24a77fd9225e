"""The agent of a host: a process beside the driver that saves protected operators and collects their pages.

    driver -> agent                                               agent -> driver
    open   protection, folder, record, waiting, statuses          opened   place
    batch  place, record, fresh, entered, waiting                 refused  place, error, message
    waiting place, waiting                                        standing place, statuses, oldest, cut
    close  place, save                                            closed   place

A line of JSON each, over a pipe each way. A place is an element's folder; ``open`` has the format's version, and
``record`` is as the ledger has it. Of a record that is there the agent alone decides when it goes, and its pages with
it. A save goes on when the driver is gone; then the agent ends. When the agent is gone the driver starts another, which
begins with the whole state of the newest record.

While an agent has an element, it holds a lock, ``elements/<name>/saver.lock``: a driver that takes the run up waits for
it, so that what it restores is what there is. An agent that comes to an ``open`` only when its driver is gone leaves
the element alone: another may have it.
"""

FORMAT = "riprap-agent/3"
