"""The one table of diagnostic codes. Help lines depend on the case and are written where the case is known."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Code:
    """A kind of diagnostic: its severity ("error" or "warning") and its message, a format string."""

    severity: str
    message: str


def _error(message: str) -> Code:
    return Code("error", message)


CODES: dict[str, Code] = {
    # Text and tokens.
    "E001": _error("this is not a text file: {reason}"),
    "E002": _error("the spec is empty"),
    "E003": _error("unexpected character {character}"),
    "E004": _error("this text is never closed"),
    "E005": _error("nested too deeply: more than {limit} levels"),
    "E006": _error("the number is too {size}"),
    "E007": _error("`{found}` is not part of the language"),
    "E008": _error("`{bracket}` is never closed"),
    "E009": _error("`{bracket}` has no matching `{other}`"),
    "E010": _error("too many errors: the rest of the file was not read"),
    # Lines.
    "E101": _error("a spec starts with the line `language 1`"),
    "E102": _error("language {number} is not known to this compiler"),
    "E103": _error("expected the line `recurrence NAME` here"),
    "E104": _error("a second `{keyword}` line"),
    "E105": _error("unknown keyword `{keyword}`"),
    "E106": _error("expected {expected}, found {found}"),
    "E107": _error("an operator is missing between `{left}` and `{right}`"),
    "E108": _error("this line is neither a declaration nor `name = expression`"),
    "E109": _error("text in quotes only describes the recurrence, right after its `recurrence` line"),
    "E110": _error("`{index}` is not a time index"),
    "E111": _error("unknown word `{word}` after `{keyword}`"),
    "E112": _error("a const is a whole number of at least 1, not {found}"),
    "E113": _error("an equation defines a name or `S[t]`, not `{target}`"),
    # Names, options, domains.
    "E201": _error("unknown name `{name}`"),
    "E202": _error("`{name}` is defined twice"),
    "E203": _error("`{name}` is reserved: {reason}"),
    "E204": _error("axis `{name}` has the name of {other}"),
    "E205": _error("state `{name}` needs a time index"),
    "E206": _error("`{name}` is {role}: it has no time index"),
    "E207": _error("unknown function `{name}`"),
    "E208": _error("`{name}` takes {expected}, not {found}"),
    "E209": _error("`{name}` is {role}, not a function"),
    "E210": _error("{role} `{name}` is never used"),
    "E211": _error("unknown domain `{name}`"),
    "E212": _error("domain `{name}` takes {expected}, not {found}"),
    "E213": _error("`{word}` cannot follow `{other}`"),
    "E214": _error("the domain of `{name}` is empty"),
    "E215": _error("the test of `if` must be a true/false option"),
    "E216": _error("`{name}` is a true/false option, not a number"),
    "E217": _error("the default of an option may use numbers, axis sizes and consts only"),
    "E218": _error("a comparison stands only as the first argument of `where`"),
    "E219": _error("the first argument of `where` must be a comparison"),
    "E220": _error("`grouped` is for inputs, and `{name}` is a param"),
    "E221": _error("`{name}` has one value for each micro-step: it needs an index"),
    "E222": _error("`{name}` has no values for single micro-steps"),
    "E223": _error("there is no `{index}`"),
    "E224": _error("the const `{name}` can be the first axis of an input or param only"),
    "E225": _error("`{index}` has no equation"),
    "E226": _error("`{target}` is not defined for each `{variable}` of the loop"),
    "E227": _error("{count} micro-steps: at most {limit} are possible"),
    "E228": _error("the loop over {loop} is empty"),
    "E229": _error("`{name}` is not known when the spec is compiled"),
    "E230": _error("every input is `grouped`: none has the value heads"),
    "E231": _error("`{text}` is not a finite number: {reason}"),
    "E232": _error("the name of a recurrence has at most {limit} characters, not {count}"),
    # Shapes.
    "E301": _error("shapes do not match: {left} {op} {right}"),
    "E302": _error("a column and a row do not go together elementwise: {left} {op} {right}"),
    "E303": _error("the product does not fit: {left} @ {right}"),
    "E304": _error("`@` with a scalar: {left} @ {right}"),
    "E305": _error("cannot tell the size of `I`"),
    "E306": _error("`{name}` takes a vector, not {shape}"),
    "E307": _error("an exponent must be a scalar, not {shape}"),
    "E308": _error("the branches of `if` have different shapes: {left} and {right}"),
    "E309": _error("the equation of state `{name}` has shape {found}, but the state is {declared}"),
    "E310": _error("`{name}` has {count} axes: at most two are possible"),
    "E311": _error("output `{name}` has shape {shape}: an output is a vector `[V]` or a scalar `[]`"),
    # The recurrence as a whole.
    "E401": _error("a cycle within t: {path}"),
    "E402": _error("state `{name}` has no equation"),
    "E403": _error("the recurrence has no output"),
    "E404": _error("{count} definitions are read by no other line: {names}"),
    "E405": _error("output `{name}` is not a definition"),
    "E406": _error("the recurrence has no state"),
    "E408": _error("`{name}` is too large once its definitions are put in: more than {limit} operations"),
    "E409": _error("the recurrence has no input"),
    "E410": _error("no input is always there: an option leaves out each of {names}"),
    # Analysis.
    "E501": _error("no {form}: {reason}"),
    "E503": _error("no form at all: {reason}"),
    # Warnings.
    "W502": Code("warning", "the decay cannot be proved to lie in [0, 1]: {found}"),
    "W503": Code("warning", "the gradients were not compared: {reason}"),
    "W501": Code("warning", "state `{name}` is square: a missing `^T` cannot be noticed by its shape"),
    # The compiler itself.
    "E999": _error("internal error in recgen, not in your spec: {reason}"),
}
"""Code -> severity and message. Codes are never reused for another meaning."""
