"""What is compiled together with a correction that differs by value channel, and what is not.

The value side may decay by channel, or the correction have a strength for every channel. Either way the tokens of a chunk meet one another
in each value channel differently, and the chunk is solved by substitution.
"""

from __future__ import annotations

from recgen.analysis.normal_form import NormalForm
from recgen.analysis.refusal import Refusal
from recgen.lang.source import Span


def refuse_by_value(form: NormalForm) -> None:
    """Raises Refusal where a form that differs by value channel has more than one correction of one matrix."""
    if not form.by_value:
        return
    what, span = _what(form)
    corrections = [s for s in form.streams if s.correct is not None]
    if len(form.state.steps) > 1:
        raise Refusal(f"`{form.state.name}` has micro-steps, and {what}; one of the two is compiled", span)
    if form.columns:
        raise Refusal(f"`{form.columns[0].name}` is one more column of `{form.state.name}`, and {what}; one of the two is compiled", span)
    if len(corrections) > 1:
        raise Refusal(
            f"`{form.state.name}` is corrected along {len(corrections)} directions, and {what}; one correction is compiled with it", span
        )


def _what(form: NormalForm) -> tuple[str, Span | None]:
    """What differs by value channel, and where."""
    if form.value_decay.log is not None:
        return f"`{form.state.name}` decays by channel over {form.value_axis}", form.value_decay.log.span or form.state.span
    stream = next(s for s in form.streams if s.strong_by_channel)
    assert stream.strength is not None
    return "a correction has a strength of its own for each value channel", stream.strength.span or form.state.span
