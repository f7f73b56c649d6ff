"""`recgen.kernels` is the generated folder."""

import importlib
import pkgutil

import recgen.kernels
from recgen.resources import resource


def test_every_generated_module_is_importable_by_name():
    names = sorted(path.stem for path in resource("generated").glob("*.py"))
    assert names
    assert dir(recgen.kernels) == names
    assert sorted(module.name for module in pkgutil.iter_modules(recgen.kernels.__path__)) == names
    for name in names:
        module = importlib.import_module(f"recgen.kernels.{name}")
        assert module.__file__ == str(resource("generated") / f"{name}.py")
        assert callable(getattr(module, name))


def test_import_by_name_gives_the_module():
    from recgen.kernels import gated_delta_rule

    assert gated_delta_rule.__name__ == "recgen.kernels.gated_delta_rule"
