"""The lines of a causal inverse of several streams."""

from __future__ import annotations

from recgen.codegen.chunk_decay import wide_dot


def inverse_lines(count: int, names: dict[tuple[int, int], str], links: dict[tuple[int, int], str]) -> tuple[str, ...]:
    """(I - L)^-1 as blocks `names` of streams by streams from those of L, one stream bordering those before it."""
    lines: list[str] = []

    def total(name: str, parts: list[str]) -> None:
        lines.extend(f"{name} {'+' if i else ''}= {part}" for i, part in enumerate(parts))

    def made(s: int, r: int) -> str:
        return f"b_{names[s, r]}"

    for n in range(count):
        before = range(n)
        for j in before:
            total(f"b_row_{j + 1}", [wide_dot(links[n, i], made(i, j)) for i in before])
            total(f"b_column_{j + 1}", [wide_dot(made(j, i), links[i, n]) for i in before])
        if before:
            total("b_own", [links[n, n], *(wide_dot(f"b_row_{j + 1}", links[j, n]) for j in before)])
        lines.append(f"{made(n, n)} = _tl_unit_inverse({'b_own' if before else links[n, n]}, BC, WIDE)")
        for j in before:
            lines.append(f"{made(n, j)} = {wide_dot(made(n, n), f'b_row_{j + 1}')}")
            lines.append(f"{made(j, n)} = {wide_dot(f'b_column_{j + 1}', made(n, n))}")
        for i in before:
            lines += [f"{made(i, j)} += {wide_dot(made(i, n), f'b_row_{j + 1}')}" for j in before]
    return tuple(lines)
