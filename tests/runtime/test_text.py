"""What is emitted and what it holds in memory: the same text every time, nothing that the recurrence does not need."""

from __future__ import annotations

import ast
import gc
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from recgen.pipeline import Compiled, compile_text
from recgen.resources import resource
from tests.numerics.helpers import BOTH, SPECS, Case, case_of, compiled, cotangents, draw, each_default, evaluate, operator_inputs

each_spec = pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)


def code(path: Path) -> str:
    """The module without its docstring, which holds the spec."""
    tree = ast.parse(compiled(path).module.text)
    return ast.unparse(ast.Module(tree.body[1:], []))


def without_triton(text: str) -> str:
    """The PyTorch part: nothing of functions that are kernels or their launches."""
    tree = ast.parse(text)
    kept = [n for n in tree.body if not (isinstance(n, ast.FunctionDef) and ("triton" in n.name or n.decorator_list))]
    return ast.unparse(ast.Module(kept, []))


# --- text ------------------------------------------------------------------------------------------------------------------------


@each_spec
def test_text_is_deterministic(path: Path) -> None:
    """Twice in a process; the name of the file is not in it."""
    text = path.read_text(encoding="utf-8")
    assert compile_text(text, "one.rec").module.text == compile_text(text, "other.rec").module.text == compiled(path).module.text


@each_spec
def test_module_says_what_it_is(path: Path) -> None:
    """The spec, how to regenerate, a digest, and no function that another does not use."""
    module = compiled(path).module
    doc = ast.get_docstring(ast.parse(module.text))
    assert doc is not None
    assert all(line.strip() in doc for line in path.read_text(encoding="utf-8").splitlines())
    assert "recgen build" in doc
    assert re.search(r"digest [0-9a-f]{64}", doc)
    private = re.findall(r"^def (_\w+)", module.text, re.MULTILINE)
    unused = [name for name in private if len(re.findall(rf"\b{name}\b", module.text)) == 1]
    assert not unused


@pytest.mark.parametrize("path", [path for path in SPECS if isinstance(compiled(path), Compiled)], ids=lambda p: p.stem)
def test_structure_follows_the_recurrence(path: Path) -> None:
    """No solve without a correction, an inverse or a substitution, one decay matrix for a scalar decay, blocks of rows for a vector."""
    form, text = compiled(path).normal_form, without_triton(code(path))
    kind = form.decay.kind
    assert ("solve_triangular" in text) == (form.feedback and not form.by_value)
    assert ("def _substitution(" in text) == form.by_value
    assert ("def _score(" in text) == (kind == "vector" or form.value_decay.kind == "vector")
    assert ("def _gamma(" in text) == (kind == "scalar" and form.stabilizer is None)
    assert ("def _cumulate(" in text) == form.decays


DESCRIPTIONS = {
    "latex": r"decay \xi and \nabla, \beta, \theta",
    "unicode": r"\N{foo} \u12 \U \x",
    "escapes": r"a\nb \' \0 \\ \\\\",
    "backslash": "ends in \\",
    "quotes": "' ''' it's",
    "return": "a\rb",
    "template": "{{ m.name }} {% raw %} {name} %s",
    "import": "import math",
}
"""What a description may hold: it comes out as it stands."""

BODIES = {
    "chunk": "S[t] = exp(g) * S[t-1] + k @ v^T",
    "scan": "plan scan\n    S[t] = exp(g) * S[t-1] + k @ v^T",
    "recurrent": "plan recurrent\n    S[t] = exp(g) * tanh(S[t-1]) + k @ v^T",
    "coupled": "state R : [K, V]\n    S[t] = exp(g) * S[t-1] + k @ v^T\n    R[t] = exp(g) * R[t-1] + k @ (v - S[t]^T @ k)^T",
}


def described(lines: tuple[str, ...], body: str) -> str:
    """A spec with these lines below its name."""
    text = "\n    ".join(("recurrence described", *lines, "input q : [K]", "input k : [K]", "input v : [V]", "input g : [] log_decay"))
    read = "(S[t] + R[t])" if "R[t]" in body else "S[t]"
    return f"language 1\n\n{text}\n    state S : [K, V]\n    {body}\n    o = {read}^T @ q\n"


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("description", DESCRIPTIONS.values(), ids=DESCRIPTIONS)
def test_descriptions_come_out_as_they_stand(description: str, body: str) -> None:
    """In the module's docstring and in those of its public functions; so does a comment, with three double quotes too."""
    comment = f'# {description} """ and more: """"'
    tree = ast.parse(compile_text(described((f'"{description}"', '"Another."', comment), body), "described.rec").module.text)
    doc = ast.get_docstring(tree)
    assert doc is not None
    assert f'    "{description}"\n' in doc
    assert f"    {comment}\n" in doc
    public = [f for f in tree.body if isinstance(f, ast.FunctionDef) and not f.name.startswith("_")]
    assert all(f"\n{description}\nAnother.\n" in (ast.get_docstring(f) or "") for f in public)
    assert {f.name for f in public} >= {"described", "step_described", "naive_recurrent_described"}


def test_linear_attention_is_plain() -> None:
    text = code(resource("specs") / "linear_attention.rec")
    for name in ("solve_triangular", "_score", "_gamma", "_cumulate", "exp2"):
        assert name not in without_triton(text)


# --- processes -------------------------------------------------------------------------------------------------------------------

USE = """
import importlib.util, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked}:
            raise ModuleNotFoundError("No module named " + repr(name), name=name)
sys.meta_path.insert(0, Absent())
import torch
for file in sys.argv[1:]:
    spec = importlib.util.spec_from_file_location("generated_module", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules["generated_module"] = module
    spec.loader.exec_module(module)
    assert not {blocked} & set(sys.modules), "imported after all"
    used = module
name = "gated_delta_rule"
q, k = (torch.nn.functional.normalize(torch.randn(1, 20, 2, 4), dim=-1).requires_grad_() for _ in range(2))
v, g, beta = torch.randn(1, 20, 2, 4), -torch.rand(1, 20, 2), torch.rand(1, 20, 2)
for form in ("chunk_", "fused_recurrent_", ""):
    o, s = getattr(used, form + name)(q, k, v, g, beta, output_final_state=True)
    (o.sum() + s.sum()).backward()
used.step_gated_delta_rule(*(x[:, 0].detach() for x in (q, k, v, g, beta)), torch.zeros(1, 2, 4, 4))
print("right")
"""


@pytest.mark.parametrize("blocked", [{"triton"}, {"recgen", "lark"}], ids=["triton", "compiler"])
def test_every_module_runs_without(blocked: set[str]) -> None:
    """Triton absent, or the compiler: import all, use one, which comes last."""
    files = sorted(resource("generated").glob("*.py"), key=lambda path: path.stem == "gated_delta_rule")
    command = [sys.executable, "-I", "-c", USE.replace("{blocked}", repr(blocked)), *map(str, files)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "right"


# --- memory ----------------------------------------------------------------------------------------------------------------------


class Largest(TorchDispatchMode):
    """The largest memory and the highest rank of what any operation makes."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes, self.numbers, self.shape = 0, 0, ()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for x in tree_leaves(result):
            if isinstance(x, torch.Tensor) and x.untyped_storage().nbytes() > self.bytes:
                self.bytes, self.shape = x.untyped_storage().nbytes(), tuple(x.shape)
        return result


def largest(case: Case, tokens: int, chunk: int, size: int) -> Largest:
    """Over forward and backward of the PyTorch chunk form."""
    sample = draw(case, tokens, batch=1, heads=(1, 1), sizes=dict.fromkeys(case.axes, size), state=False).to(torch.float32)
    arguments = operator_inputs(case, sample)
    numbers = [1.0 for o in case.compiled.recurrence.options if not isinstance(o.default, bool)]
    options = (*numbers, *(value for _, value in case.flags))
    module, incoming = case.module, cotangents(case, sample)
    d_final = tuple(torch.zeros(1, 1, *(size for _ in s.axes)) for s in case.states)
    none = (None,) * len(case.states)
    with Largest() as seen, torch.no_grad():
        *_, states = module._torch_chunk_forward(arguments, options, none, None, chunk, True)
        module._torch_chunk_backward(arguments, options, none, None, chunk, states, tuple(incoming[:-1]), d_final)
    return seen


@each_default
def test_no_tensor_of_chunk_by_chunk_by_channels(case: Case) -> None:
    """Nothing larger than a few chunk-states or scores: [C, C, K] of every chunk would be 64 times a [C, K]."""
    tokens, chunk, size = 1024, 64, 64
    seen = largest(case, tokens, chunk, size)
    streams = case.compiled.normal_form.streams if isinstance(case.compiled, Compiled) else ()
    corrections = sum(s.correct is not None for s in streams)  # each finds what each has written
    assert seen.bytes <= max(8, corrections**2) * 4 * tokens * size, seen.shape
    assert seen.bytes >= 4 * tokens * size  # the saved states and the outputs: the recorder sees


@each_default
def test_memory_of_a_long_sequence_is_linear(case: Case) -> None:
    """Twice the tokens, at most twice the largest tensor."""
    one, two = (largest(case, tokens, 16, 8).bytes for tokens in (512, 1024))
    assert two <= 2 * one


def test_largest_notices() -> None:
    with Largest() as seen:
        torch.ones(8, 8, 8).sum()
    assert (seen.bytes, seen.shape) == (2048, (8, 8, 8))


@pytest.mark.parametrize("name", ["gated_delta_rule", "mamba2"])
def test_nothing_lives_on_after_a_backward(name: str) -> None:
    """No tensor is kept by the module, its operators or their contexts."""
    case = case_of(name)
    sample = draw(case, 40).to(torch.float32)
    incoming = cotangents(case, sample)
    for form in BOTH:
        evaluate(case, form, sample, incoming)
        gc.collect()
        before = sum(issubclass(type(x), torch.Tensor) for x in gc.get_objects())
        evaluate(case, form, sample, incoming)
        gc.collect()
        assert sum(issubclass(type(x), torch.Tensor) for x in gc.get_objects()) == before
