"""SQL expressions over Arrow arrays that mean what they mean in Spark's ANSI mode.

    text --sqlglot--> syntax tree --Binder, in a Scope--> typed tree --evaluate--> Arrow array

Everything about names and types is decided when the text is parsed, so building a graph finds every mistake
that is not in the data. `docs/expressions.md` describes the dialect.
"""

from riprap.expressions.aggregates import AggregateCall, Aggregation, parse_aggregates
from riprap.expressions.errors import EvaluationError, ExpressionError
from riprap.expressions.parsing import Named, parse_condition, parse_select
from riprap.expressions.scope import Scope
from riprap.expressions.tree import Expression
from riprap.expressions.types import check_type, hold, holding, normalise, parse_schema, type_name
from riprap.expressions.users import UserAggregate, UserFunction, differing_in
from riprap.expressions.variables import Variable, Variables, parse_variables

__all__ = [
    "AggregateCall",
    "Aggregation",
    "EvaluationError",
    "Expression",
    "ExpressionError",
    "Named",
    "Scope",
    "UserAggregate",
    "UserFunction",
    "Variable",
    "Variables",
    "check_type",
    "differing_in",
    "hold",
    "holding",
    "normalise",
    "parse_aggregates",
    "parse_condition",
    "parse_schema",
    "parse_select",
    "parse_variables",
    "type_name",
]
