"""Where the sections of a sink's output are: the same in every run of a campaign.

They are laid out by a run in which no stream lags. In others a tuple has the place it came to, which depends on the
seed, and not the one it derives from.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from riprap.errors import GraphError
from riprap.faults.campaign import Campaign
from riprap.faults.outputs import NOWHERE, Form, SinkOutput, places
from riprap.faults.replay import StreamPiece
from riprap.graph.operator import Operator


def lay_out(
    campaign: Campaign, sink: Operator, pieces: Sequence[StreamPiece], *, origin: int, last: int
) -> Form:
    """Cut the output of a sink into sections; ``last`` is the last position of the source.

    A last section that the stream does not reach the end of is left out: it has a few tuples, and would count as much
    as a whole one.
    """
    columns = campaign.score.reads if campaign.score.reads is not None else tuple(sink.schema.names)
    for name in (*columns, *campaign.key, *((campaign.by,) if campaign.by else ())):
        if name not in sink.schema.names:
            names = ", ".join(sink.schema.names)
            raise GraphError(
                f"the campaign names column '{name}', which sink '{sink.name}' has not; it has: {names}"
            )
    first, reached = 0, last
    if campaign.by is not None:
        numbers = np.concatenate([places(piece, campaign.by) for piece in pieces])
        positions = np.concatenate([piece.tags[origin + 1] for piece in pieces])[numbers > NOWHERE]
        numbers = numbers[numbers > NOWHERE]
        if not len(numbers):
            raise GraphError(f"sink '{sink.name}' puts nothing out on this feed: there is nothing to score")
        first = int(numbers.min()) // campaign.section * campaign.section
        # The stream goes on after the last tuple that is put out, by as much a position as before it.
        step = float(np.ptp(numbers)) / max(1, int(np.ptp(positions)))
        reached = int(numbers.max() + (last - positions.max()) * step + max(0.0, step - 1.0))
    whole, rest = divmod(reached + 1 - first, campaign.section)
    return Form(
        columns=columns,
        key=campaign.key,
        by=campaign.by,
        origin=origin,
        length=campaign.section,
        first=first,
        count=max(1, whole),
        rest=rest if whole else 0,
    )


def section_at(form: Form, output: SinkOutput, position: int) -> int:
    """Return the section of the output in which the effects of a position of the source begin."""
    if form.by is None:
        return int(form.section(np.array([position]))[0])
    # The first tuple that derives from there, or from after it, says where that is.
    later = output.section[output.tags[form.origin + 1] >= position]
    return int(later.min()) if len(later) else form.count
