"""What can be wrong with a net, while it is described and while it is solved.

RiprapError
|- NetError              the net is described wrongly; found while it is made
|  |- CodeError          a gate, rate or probability is not in the small language of nets
|  |- UnknownNameError   code, an arc or a reward names a place or an activity that is not there
|  `- NotMarkovError     an exact solution is asked of a net whose times are not all exponential
`- SolutionError         the net came to something impossible while it was simulated or solved
   |- ProbabilityError   the probabilities of cases do not sum to one (constant ones: while the net is made)
   |- MarkingError       a place came to hold a negative number of tokens, or a broken one
   |- TimeParameterError a rate, or another parameter of a time or a weight, is negative or not a number
   |- UnstableError      instantaneous activities go on for ever
   `- TooManyStatesError the net has more markings than an exact solution was allowed
"""

from __future__ import annotations

from riprap.errors import RiprapError


class NetError(RiprapError, ValueError):
    """A net is described wrongly."""


class CodeError(NetError):
    """Code is not in the small language of nets."""


class UnknownNameError(NetError):
    """A name stands for nothing in the net."""


class NotMarkovError(NetError):
    """The net has no exact solution as a Markov chain."""


class SolutionError(RiprapError, RuntimeError):
    """A net came to something impossible while it was simulated or solved."""


class ProbabilityError(SolutionError, NetError):
    """The probabilities of an activity's cases do not sum to one."""


class MarkingError(SolutionError):
    """A place came to hold what is no number of tokens."""


class TimeParameterError(SolutionError):
    """A parameter of a time, or a weight, is negative or not a number."""


class UnstableError(SolutionError):
    """Completions go on for ever without time passing."""


class TooManyStatesError(SolutionError):
    """There are more markings than an exact solution was allowed."""
