"""Every form and gradient of an emitted module against the recurrence itself, token by token in float64."""

from __future__ import annotations

from recgen.verify.report import Report, Row
from recgen.verify.runner import reproduce, verify

__all__ = ["Report", "Row", "reproduce", "verify"]
