"""`generated/` is what the specs give: equal to a fresh build, in every process, and free of anything but torch and triton."""

import ast
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from recgen.resources import resource

SPECS = sorted(resource("specs").glob("*.rec"))
GENERATED = sorted(resource("generated").glob("*.py"))
ALLOWED_IMPORTS = {"torch", "triton", *sys.stdlib_module_names}

each_spec = pytest.mark.parametrize("spec", SPECS, ids=lambda path: path.stem)
each_module = pytest.mark.parametrize("module", GENERATED, ids=lambda path: path.stem)

BUILD = """
import hashlib, sys
from pathlib import Path
from recgen.pipeline import compile_text
for name in sys.argv[1:]:
    path = Path(name)
    print(path.stem, hashlib.sha256(compile_text(path.read_text(), "elsewhere.rec").module.text.encode()).hexdigest())
"""


def test_every_spec_has_its_module_and_every_module_its_spec():
    assert [path.stem for path in SPECS] == [path.stem for path in GENERATED]
    assert SPECS


@each_spec
def test_module_equals_a_fresh_build(spec: Path):
    from recgen.pipeline import compile_text

    module = compile_text(spec.read_text(encoding="utf-8"), str(spec)).module
    assert module.name == spec.stem
    committed = (resource("generated") / f"{module.name}.py").read_text(encoding="utf-8")
    assert module.text == committed, "run `recgen build` and commit the result"


@pytest.mark.parametrize("seed", ["1", "12345"])
def test_text_does_not_depend_on_the_process(seed: str, tmp_path: Path):
    """Another hash seed, another folder, another locale, and the specs in the opposite order give the same text."""
    environment = {**os.environ, "PYTHONHASHSEED": seed, "LC_ALL": "C", "TZ": "Asia/Tokyo"}
    command = [sys.executable, "-X", "utf8", "-c", BUILD, *map(str, reversed(SPECS))]
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    digests = dict(line.split() for line in result.stdout.splitlines())
    assert digests == {path.stem: hashlib.sha256(path.read_bytes()).hexdigest() for path in GENERATED}


@each_module
def test_module_imports_nothing_else(module: Path):
    imported = set()
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a generated module is one file"
            imported.add(str(node.module).split(".")[0])
    assert imported <= ALLOWED_IMPORTS


@each_module
def test_module_names_no_machine(module: Path):
    text = module.read_text(encoding="utf-8")
    assert str(resource("specs").parent) not in text
    assert str(Path.home()) + os.sep not in text
