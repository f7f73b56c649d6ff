"""What has no chunkwise form here, with the exact reason."""

import pytest

from recgen.lang import SpecErrors
from recgen.pipeline import compile_text
from tests.analysis.helpers import KEY_FIRST, refusal

READ = "o = S[t]^T @ q"
SQUARE = KEY_FIRST.replace("state S : [K, V]", "input M : [K, K]\n    input N : [K, V] in(0, 1)\n    state S : [K, V]")
VECTOR = KEY_FIRST.replace("[K, V]", "[K]")
TWO = KEY_FIRST + "    state R : [K, V]\n"
STEPS = KEY_FIRST + "    const n = 2\n    input w : [n, K]\n    input x : [n, V]\n"
BESIDE = KEY_FIRST + "    state z : [K]\n"
STRONG = "a correction has a strength of its own for each value channel"


@pytest.mark.parametrize(
    ("lines", "declarations", "reason"),
    [
        (
            ("S[t, 0] = S[t-1] * exp(h)^T", "S[t, i] = S[t, i-1] + w[i] @ (x[i] - S[t, i-1]^T @ w[i])^T for i in 1..n", READ),
            STEPS,
            "`S` has micro-steps, and `S` decays by channel over V; one of the two is compiled",
        ),
        (
            ("S[t, 0] = S[t-1]", "S[t, i] = S[t, i-1] + w[i] @ (x[i] * (x[i] - S[t, i-1]^T @ w[i]))^T for i in 1..n", READ),
            STEPS,
            f"`S` has micro-steps, and {STRONG}; one of the two is compiled",
        ),
        (
            ("S[t] = (I - k @ k^T) @ S[t-1] * exp(h)^T + k @ v^T", "z[t] = z[t-1] + k * (a - k^T @ z[t-1])", READ + " / (z[t]^T @ q)"),
            BESIDE,
            "`z` is one more column of `S`, and `S` decays by channel over V; one of the two is compiled",
        ),
        (
            ("S[t] = (I - b * k @ k^T - b * e @ q^T) @ S[t-1] * exp(h)^T + k @ v^T", READ),
            KEY_FIRST,
            "`S` is corrected along 2 directions, and `S` decays by channel over V; one correction is compiled with it",
        ),
        (
            ("S[t] = S[t-1] * exp(h)^T + S[t-1] - k @ (k^T @ S[t-1])", READ),
            KEY_FIRST,
            "the state is scaled by a sum, a part of it by value channel: write it as one product",
        ),
        (
            ("S[t] = S[t-1] - k @ (u * (S[t-1]^T @ k))^T - k @ (v * (S[t-1]^T @ e))^T", READ),
            KEY_FIRST,
            "corrections along one direction have different strengths for the value channels",
        ),
        (
            ("S[t] = (I - k @ k^T) @ S[t-1] @ (I - v @ v^T) + k @ v^T", READ),
            KEY_FIRST,
            "the state is corrected on both sides, over K and over V",
        ),
        (("S[t] = exp(f) * S[t-1] * exp(h)^T + k @ v^T", READ), KEY_FIRST, "the state decays by channel on both sides, over K and over V"),
        (
            ("S[t] = M @ S[t-1] + k @ v^T", READ),
            SQUARE,
            "a full matrix transforms the state: the transition is dense, not diagonal plus low rank",
        ),
        (
            ("S[t] = N * S[t-1] + k @ v^T", READ),
            SQUARE,
            "a full matrix multiplies the state entry by entry: elementwise decay, the scan class",
        ),
        (("S[t] = S[t-1] + N", READ), SQUARE, "a full matrix is written into the state; a write is a column times a row"),
        (
            ("S[t] = exp(g) * S[t-1] + k", "o = sum(S[t] * q)"),
            VECTOR,
            "state `S` has 1 axes; a matrix state [K, V] is compiled (vector states are the scan class)",
        ),
        (
            ("S[t] = S[t-1] + k @ v^T", "R[t] = R[t-1] + k @ u^T", "o = S[t]^T @ q + R[t]^T @ q"),
            TWO,
            "the spec carries 2 states; one matrix state is compiled",
        ),
        (("S[t] = tanh(S[t-1]) + k @ v^T", READ), KEY_FIRST, "the state enters `tanh` which is not linear"),
        (
            ("S[t] = S[t-1] + k @ (v * (S[t-1]^T @ k))^T * (S[t-1]^T @ k)^T", READ),
            KEY_FIRST,
            "two factors of this product both depend on the state",
        ),
        (
            ("option keep = true", "S[t] = (S[t-1] if keep else b * S[t-1]) + k @ v^T", READ),
            KEY_FIRST,
            "option `keep` chooses between terms that read the state: let it choose what multiplies them",
        ),
        *(
            (
                ("S[t] = S[t-1] + k @ v^T", f"o = S[t]^T @ tanh({query})"),
                KEY_FIRST,
                "a matrix stands inside a number or a function of vectors: multiply out what is in brackets, as in `k - a * (a^T @ k)` for "
                "`(I - a @ a^T) @ k`",
            )
            for query in ("(I - k @ k^T) @ q", "k @ e^T @ q")
        ),
        (("S[t] = 0 * S[t-1] + k @ v^T", READ), KEY_FIRST, "S[t] does not carry S[t-1] on: every step starts afresh"),
        (("S[t] = k @ v^T", READ), KEY_FIRST, "S[t] does not carry S[t-1] on: every step starts afresh"),
        (("S[t] = exp(g) * S[t-1]", READ), KEY_FIRST, "nothing is ever written into the state"),
        (
            ("S[t] = S[t-1] + k @ v^T", "R[t] = R[t-1] + S[t]", "o = R[t]^T @ q"),
            TWO,
            "`R[t]` reads `S[t]`: 2 states depend on one another; one matrix state is compiled",
        ),
        (
            ("S[t] = S[t-1] + k @ v^T", READ, "stabilize log"),
            KEY_FIRST,
            "`stabilize log` needs one state without axes, the running maximum; there are 0",
        ),
        (
            ("S[t] = S[t-1] + k @ v^T", "o = sum(u) * sqrt(S[t])^T @ q"),
            KEY_FIRST,
            "the state enters `sqrt` which is not linear",
        ),
        (
            ("S[t] = S[t-1] + k @ v^T", "o = (2 - S[t])^T @ q"),
            KEY_FIRST,
            "a vector or scalar is added to every entry of a matrix that depends on the state",
        ),
        (
            ("S[t] = S[t-1] + (M @ k) @ v^T", READ),
            SQUARE,
            "a full matrix multiplies a vector of inputs: make their product an input",
        ),
        *(
            (
                (f"S[t] = S[t-1] + ({write}) @ v^T", f"o = S[t]^T @ ({read})"),
                SQUARE,
                "`M` is a full matrix, and operands are numbers and vectors: make what it gives an input",
            )
            for write, read in (("tanh(M @ k)", "q"), ("(k^T @ M @ e) * k", "q"), ("k", "sum(M @ k) * q"))
        ),
        (
            ("S[t] = S[t-1] + k @ v^T", "o = S[t]^T @ (M @ q)"),
            SQUARE,
            "a full matrix multiplies a vector of inputs: make their product an input",
        ),
    ],
)
def test_reason(lines, declarations, reason):
    assert refusal(*lines, declarations=declarations) == reason


def test_a_refusal_points_at_the_term():
    lines = ("input q : [K]", "input k : [K]", "state S : [K, V]", "S[t] = S[t-1] + k @ tanh(S[t-1]^T @ k)^T", "o = S[t]^T @ q")
    text = "language 1\nrecurrence r\n    input v : [V]\n" + "".join(f"    {line}\n" for line in lines).replace("@ q", "@ q + v")
    with pytest.raises(SpecErrors) as failure:
        compile_text(text, "spec.rec")
    (diagnostic,) = failure.value.diagnostics
    assert diagnostic.code == "E501"
    assert diagnostic.render().split("\n") == [
        "spec.rec:7:25: error[E501]: no chunkwise form: the state enters `tanh` which is not linear",
        "        S[t] = S[t-1] + k @ tanh(S[t-1]^T @ k)^T",
        "                            ^^^^^^^^^^^^^^^^^^",
        "help: `plan recurrent` compiles it to step and recurrent forms with gradients, which take one token after another",
    ]


def test_no_other_plan_is_advised_where_it_compiles_nothing_either() -> None:
    lines = ("input q : [K]", "state S : [K, V]", "S[t] = S[t-1]", "o = S[t]^T @ q")
    text = "language 1\nrecurrence r\n" + "".join(f"    {line}\n" for line in lines)
    with pytest.raises(SpecErrors) as found:
        compile_text(text)
    (error,) = found.value.diagnostics
    assert (error.code, error.help) == ("E501", None)
    with pytest.raises(SpecErrors, match="E503"):
        compile_text(text + "    plan recurrent\n")
