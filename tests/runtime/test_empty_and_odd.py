"""Calls at the edge of what there is: no heads, no sequences, no keys, options that numbers are divided by, tensors of another kind."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import numpy as np
import pytest
import torch

import recgen

FORMS = ("naive_recurrent_", "fused_recurrent_", "chunk_", "")
EVERY_FORM = pytest.mark.parametrize("form", FORMS, ids=["naive", "recurrent", "chunk", "plain"])
SPEC = """language 1

recurrence edges
    input q : [K] grouped
    input k : [K] grouped
    input v : [V]
    option z     = 2
    option scale = K^-0.5
    state S : [K, V]

    S[t] = S[t-1] + (k / z) @ v^T
    o    = scale * S[t]^T @ q
"""


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RECGEN_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield recgen.load(SPEC)


def drawn(tokens: int = 3, key_heads: int = 2, heads: int = 2, keys: int = 4) -> dict[str, torch.Tensor]:
    sizes = {"q": (key_heads, keys), "k": (key_heads, keys), "v": (heads, 5)}
    return {name: torch.randn(1, tokens, *size) for name, size in sizes.items()}


@EVERY_FORM
def test_no_heads(module: ModuleType, form: str) -> None:
    for heads, name in (({"heads": 0}, "v"), ({"key_heads": 0}, "q")):
        with pytest.raises(ValueError, match=f"^edges: argument `{name}` should be of at least one head, but is of 0 heads$"):
            getattr(module, f"{form}edges")(**drawn(**heads))


@EVERY_FORM
def test_a_default_without_a_value_names_the_sizes(module: ModuleType, form: str) -> None:
    function = getattr(module, f"{form}edges")
    told = "option `scale` should be given, but is left to its default, which has no value with H = 2, K = 0, HV = 2, V = 5"
    with pytest.raises(ValueError, match=f"^edges: {told}$"):
        function(**drawn(keys=0))


@EVERY_FORM
def test_an_option_of_0_that_numbers_are_divided_by(module: ModuleType, form: str) -> None:
    """The loop divides tensors, as torch does; where the number is divided first, the error names the option."""
    function = getattr(module, f"{form}edges")
    if form == "naive_recurrent_":
        assert not function(**drawn(), z=0.0)[0].isfinite().any()
        return
    with pytest.raises(ValueError, match=r"^edges: option `z` should be such that numbers have quotients and powers, but is not"):
        function(**drawn(), z=0.0)


@EVERY_FORM
def test_no_sequences(module: ModuleType, form: str) -> None:
    function = getattr(module, f"{form}edges")
    for state in (None, torch.zeros(0, 2, 4, 5)):
        arguments = {"cu_seqlens": torch.tensor([0]), "initial_state": state, "output_final_state": True}
        o, final = function(**drawn(tokens=0), **arguments)
        assert (o.shape, final.shape) == ((1, 0, 2, 5), (0, 2, 4, 5))
        assert (o.dtype, final.dtype) == (torch.float32, torch.float32)
    with pytest.raises(ValueError, match="of at least one boundary"):
        function(**drawn(tokens=0), cu_seqlens=torch.zeros(0, dtype=torch.int64))


@EVERY_FORM
def test_what_is_no_tensor_is_told_by_its_type(module: ModuleType, form: str) -> None:
    function = getattr(module, f"{form}edges")
    for state, told in (((torch.zeros(1, 2, 4, 5),), "of type tuple of length 1"), (np.zeros((1, 2, 4, 5)), "of type ndarray")):
        with pytest.raises(TypeError, match=rf"^edges: argument `initial_state` should be a tensor \[.*\], but is {told}$"):
            function(**drawn(), initial_state=state)


@EVERY_FORM
def test_sparse_tensors(module: ModuleType, form: str) -> None:
    arguments = drawn()
    with pytest.raises(ValueError, match=r"^edges: argument `v` should be a dense tensor, but is of the layout torch.sparse_coo$"):
        getattr(module, f"{form}edges")(**{**arguments, "v": arguments["v"].to_sparse()})
