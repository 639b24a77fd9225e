"""The operators there are, an operator a file: its value, what it tells others, how it is added, and its kernel.

What is named here is what such a file is made of, one of the user's too.
"""

from riprap.graph.checks import Here, Inputs, Streams
from riprap.graph.operator import Operator, PassesOn, Traits, passed_on
from riprap.kernels.chunk import Chunk, struct_of
from riprap.kernels.given import Given, Result, derive
from riprap.kernels.history import History, line_up
from riprap.state.windows import gather

__all__ = [
    "Chunk",
    "Given",
    "Here",
    "History",
    "Inputs",
    "Operator",
    "PassesOn",
    "Result",
    "Streams",
    "Traits",
    "derive",
    "gather",
    "line_up",
    "passed_on",
    "struct_of",
]
