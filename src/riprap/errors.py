"""Everything Riprap raises on purpose, in one tree.

RiprapError
|- GraphError            the application is described wrongly; found while it is built
|- ModelError            a model, or the profile it is made from, is described wrongly
|- NotYetError           described correctly, but this version cannot carry it out
|- JavaNotFoundError     no Java for Spark (in riprap.runtime.java)
|- NetError              a stochastic activity network is described wrongly (in riprap.san.errors)
|- SolutionError         it came to something impossible while it was solved (in riprap.san.errors)
`- RunError              something went wrong while it ran
   |- OperatorError      an operator's own code or expression failed on a tuple
   |- MissingPageError   a state page the ledger names is not where it should be
   |- PageSpaceError     host memory for state pages is full
   |- LedgerError        the ledger lacks a record, or holds one this batch contradicts
   |- ChannelError       a channel's log is damaged, or lacks what a reader needs
   |- StoreError         a durable store cannot be used now: full, read-only, away, or it refuses us
   |- CorruptValueError  a durable store is there, but what it holds under a key is damaged
   |- SealError          state of a user's class does not have the seal it should have, and is not loaded
   |- OwnershipError     a file or folder that must be this user's alone is not
   |- RegionHaltedError  the run was stopped while a region was halted (in riprap.runtime.supervision.regions)
   `- FormatError        a persisted file has an unknown format or version
      `- DamagedFileError   or it is damaged: empty, cut short, or not what it should hold

ConnectionLost is apart: connectors raise it to be called again.
"""

from __future__ import annotations


class RiprapError(Exception):
    """Base of every error Riprap raises on purpose."""


class ConnectionLost(Exception):
    """A server cannot be reached, or hung up. Connectors turn their client's own errors into this one."""


class GraphError(RiprapError, ValueError):
    """The application is described wrongly."""


class ModelError(RiprapError, ValueError):
    """A model, or the profile it is made from, is described wrongly."""


class NotYetError(RiprapError, NotImplementedError):
    """The application asks for something this version cannot carry out."""


class RunError(RiprapError, RuntimeError):
    """A running application failed."""


class OperatorError(RunError):
    """An operator's own code or expression failed on a tuple."""


class MissingPageError(RunError):
    """A state page the ledger names cannot be read: never the same as an empty state."""


class PageSpaceError(RunError):
    """Host memory for state pages is full."""


class LedgerError(RunError):
    """The ledger lacks a record, or holds one that this batch contradicts."""


class ChannelError(RunError):
    """A channel's log is damaged, or lacks what a reader needs."""


class StoreError(RunError):
    """A durable store cannot be used now; later, it may."""


class CorruptValueError(RunError):
    """A durable store holds a damaged value: no use in asking again."""


class SealError(RunError):
    """Pickled state does not have the seal it should have: it may be anybody's, so it is not loaded."""


class OwnershipError(RunError):
    """A file or folder that must be this user's alone is not."""


class FormatError(RunError):
    """A persisted file has an unknown format or version."""


class DamagedFileError(FormatError):
    """A small file of a run is damaged: empty, cut short, or not what it should hold."""
