"""What the host functions of the chunkwise Triton kernels say of the declared states, and the numbers that they hand to the kernels."""

from __future__ import annotations

from dataclasses import dataclass

from recgen.analysis.normal_form import NormalForm
from recgen.codegen.chunk_columns import columns_of, in_order, scale_index
from recgen.codegen.chunk_kernels import ChunkKernels


@dataclass(frozen=True)
class HostStates:
    """The declared states in the host functions.

    `matrix`: the number of the matrix among them; `saved`: what the forward keeps of the states before each chunk; `finals`,
    `initial_gradients`: of all states in declaration order; `initial_columns`, `final_columns`: of the further columns, `ones` their sizes.
    """

    several: bool
    matrix: str
    saved: str
    finals: str
    initial_gradients: str
    initial_columns: str
    final_columns: str
    ones: str


def host_states(form: NormalForm) -> HostStates:
    """The states of a form."""
    no_gradient = f"_no_gradient(initial[{scale_index(form)}])"
    return HostStates(
        several=len(form.recurrence.states) > 1,
        matrix=str([s.name for s in form.recurrence.states].index(form.state.name)),
        saved="states_of[0]" if form.columns else "states",
        finals=in_order(form, "final_state", "final_{name}", "final_scale"),
        initial_gradients=in_order(form, "memory.d_initial", "_summed(memory.columns[{number}].d_initial)", no_gradient),
        initial_columns="".join(f"initial[{c.index}], " for c in columns_of(form)).rstrip(),
        final_columns="".join(f"d_final[{c.index}], " for c in columns_of(form)).rstrip(),
        ones=", ".join("1" for _ in form.columns),
    )


@dataclass(frozen=True)
class KernelNumbers:
    """Numbers that are the same for all tokens.

    `parameters`: of the kernels, which are not compiled again for other values of what is `unspecialized`; `once`: the lines that make
    numbers of the tiles' type of them; `computed`: on the host, from the names that `bound` defines.
    """

    parameters: tuple[str, ...]
    unspecialized: str
    once: tuple[str, ...]
    bound: tuple[str, ...]
    computed: tuple[str, ...]


def kernel_numbers(form: NormalForm, kernels: ChunkKernels) -> KernelNumbers:
    """The numbers that the kernels' lines, all printed before, were found to need."""
    numbers = kernels.numbers.found
    options = [o.name for o in sorted(form.recurrence.options, key=lambda o: isinstance(o.default, bool))]  # numbers, then flags
    bound = tuple(f"{name} = options[{i}]" for i, name in enumerate(options) if any(name in text for _, text in numbers))
    sizes = dict.fromkeys(x for a in form.recurrence.arguments for x in a.axes)
    bound += tuple(f'_size_{x} = _size_of("{x}", arguments)' for x in sizes if any(f"_size_{x}" in text for _, text in numbers))
    scalars = [f"s_{a.info.name}" for a in kernels.arguments if a.axis is None]
    return KernelNumbers(
        parameters=tuple(f"n_{name}: tl.float64" for name, _ in numbers),
        unspecialized=", ".join(f'"{name}"' for name in (*scalars, *(f"n_{name}" for name, _ in numbers))),
        once=tuple(f"c_{name} = tl.full((), n_{name}, ACC)" for name, _ in numbers),
        bound=bound,
        computed=tuple(f"float({text})" for _, text in numbers),
    )
