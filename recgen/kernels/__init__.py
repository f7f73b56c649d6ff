"""The committed modules of `generated/`, importable by name: `from recgen.kernels import gated_delta_rule` gives that module.

The package has no modules of its own: its search path is the `generated` folder, wherever that lies.
"""

from __future__ import annotations

from recgen.resources import resource

__path__ = [str(resource("generated"))]


def __dir__() -> list[str]:
    """The names of the modules, for completion."""
    from pkgutil import iter_modules

    return sorted(module.name for module in iter_modules(__path__))
