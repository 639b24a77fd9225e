"""What a connector promises when something fails, as data: for protection, for `riprap operators`, for the pages."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What holds after a failure.

    Of a source: ``exact`` if it can be read again from where a run stopped. Of a sink: ``exact`` if it holds each
    batch once even when a batch is repeated. ``why_not`` says what is missing otherwise.
    """

    call: str
    does: str
    after_failure: str
    why_not: str = ""

    @property
    def exact(self) -> bool:
        return not self.why_not
