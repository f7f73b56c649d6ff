"""The mLSTM against the PyTorch functions of transformers' xLSTM: outputs, states, gradients, steps."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from recgen.kernels import mlstm

native = pytest.importorskip("transformers.models.xlstm.modeling_xlstm")
B, H, T, K, V = 2, 3, 50, 8, 12


def drawn(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def inputs() -> dict[str, Tensor]:
    """[B, H, T, ...], as transformers lays them out."""
    vectors = {"q": drawn(B, H, T, K, seed=0), "k": drawn(B, H, T, K, seed=1), "v": drawn(B, H, T, V, seed=2)}
    return {**vectors, "i": 2 * drawn(B, H, T, seed=3), "f": 2 * drawn(B, H, T, seed=4) + 1}


def states() -> tuple[Tensor, Tensor, Tensor]:
    return drawn(B, H, K, V, seed=5), drawn(B, H, K, seed=6), drawn(B, H, seed=7)


def theirs(x: dict[str, Tensor], eps: float) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Token after token in float64; their maximum is [B, H, 1]."""
    c, n, m = states()
    found = native.mlstm_recurrent_sequence_native(
        *x.values(), c, n, m.unsqueeze(-1), return_last_states=True, eps=eps, dtype_state=torch.float64
    )
    last = next(s for s in found[1:] if isinstance(s, tuple) and s[0] is not None and s[0].shape == c.shape)
    return found[0], (last[0], last[1], last[2].squeeze(-1))


def ours(form: Callable[..., tuple[Tensor, tuple[Tensor, ...]]], x: dict[str, Tensor], eps: float) -> tuple[Tensor, tuple[Tensor, ...]]:
    o, last = form(**{k: v.transpose(1, 2) for k, v in x.items()}, initial_state=states(), output_final_state=True, eps=eps)
    return o.transpose(1, 2), last


def gradients(run: Callable[[dict[str, Tensor]], Tensor]) -> dict[str, Tensor]:
    leaves = {k: v.clone().requires_grad_() for k, v in inputs().items()}
    o = run(leaves)
    found = torch.autograd.grad(o, list(leaves.values()), drawn(*o.shape, seed=8))
    return dict(zip(leaves, found, strict=True))


def close(found: Tensor, wanted: Tensor, limit: float) -> None:
    assert (found - wanted).abs().max() <= limit * wanted.abs().max()


each_form = pytest.mark.parametrize("form", [mlstm.chunk_mlstm, mlstm.fused_recurrent_mlstm], ids=["chunk", "recurrent"])


@each_form
def test_outputs_and_states(form: Callable[..., tuple[Tensor, tuple[Tensor, ...]]]) -> None:
    (o, found), (wanted_o, wanted) = ours(form, inputs(), 1e-6), theirs(inputs(), 1e-6)
    close(o, wanted_o, 1e-12)
    for x, y in zip(found, wanted, strict=True):
        close(x, y, 1e-12)


@each_form
@pytest.mark.parametrize(("eps", "limit"), [(0.0, 1e-11), (1e-6, 1e-5)])
def test_gradients(form: Callable[..., tuple[Tensor, tuple[Tensor, ...]]], eps: float, limit: float) -> None:
    """Equal where the result does not depend on the scale; an eps does, and theirs goes through the maximum."""
    found, wanted = gradients(lambda x: ours(form, x, eps)[0]), gradients(lambda x: theirs(x, eps)[0])
    for name, y in wanted.items():
        close(found[name], y, limit)


def test_steps() -> None:
    x, state = inputs(), states()
    wanted, last = theirs(x, 1e-6)
    for t in range(T):
        o = mlstm.step_mlstm(**{k: v[:, :, t] for k, v in x.items()}, state=state)
        close(o, wanted[:, :, t], 1e-11)
    for x_state, y in zip(state, last, strict=True):
        close(x_state, y, 1e-12)


@each_form
def test_extreme_gates(form: Callable[..., tuple[Tensor, tuple[Tensor, ...]]]) -> None:
    """Weights of e^80 and e^-80 and hard resets: finite, and what theirs gives."""
    x = inputs()
    x["i"][:, :, 3::5], x["i"][:, :, 4::7], x["f"][:, :, 2::6] = 80.0, -80.0, -80.0
    (o, _), (wanted, _) = ours(form, x, 1e-6), theirs(x, 1e-6)
    close(o, wanted, 1e-11)
