"""What the analyzer raises where a term does not fit."""

from __future__ import annotations

from recgen.lang.source import Span


class Refusal(Exception):
    """The term does not fit; `reason` says why in the user's terms, `span` where."""

    def __init__(self, reason: str, span: Span | None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.span = span
