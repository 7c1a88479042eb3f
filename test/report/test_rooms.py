"""The rooms of the command: which may import which, and what is loaded for which command."""

import ast
import subprocess
import sys

import pytest
from conftest import ROOT

SCRIPTS = ROOT / "scripts"
PACKAGE = SCRIPTS / "cachalot_command"
ROOMS = ("command", "writing", "reading", "common")  # each may import what stands behind it
TYPED = {"cachalot", "package", "test", "try"}


def name_of(path):
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


def imports_of(path):
    """(modules of the package, names of others) that a module imports, also where it is within a function."""
    own, foreign = set(), set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            foreign |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            package, *place = (node.module or "").split(".")
            assert node.level == 0, f"{path}: a relative import"
            if package != "cachalot_command":
                foreign.add(package)
            elif len(place) == 2:
                own.add(".".join(place))
            else:
                own |= {".".join([*place, alias.name]) for alias in node.names}
    return own, foreign


MODULES = {name_of(path): imports_of(path) for path in sorted(PACKAGE.rglob("*.py")) if path.stem != "__init__"}


def test_imports_run_one_way():
    """From a room to those behind it. Commands do not import each other: what two of them need lies below both."""
    for module, (own, foreign) in MODULES.items():
        room = module.split(".")[0]
        allowed = ROOMS[ROOMS.index(room) + (room == "command"):]
        assert {name for name in own if name.split(".")[0] not in allowed} == set(), module
        assert own <= MODULES.keys() and "cachalot_command" not in foreign, module


def test_no_module_imports_itself_by_way_of_others():
    done, pending = set(), dict(MODULES)
    while free := [module for module, (own, _) in pending.items() if own <= done]:
        done.update(free)
        pending = {module: imports for module, imports in pending.items() if module not in done}
    assert not pending


def test_only_the_standard_library_is_imported():
    for module, (_, foreign) in MODULES.items():
        assert foreign <= sys.stdlib_module_names, module


def test_scripts_has_what_a_person_types_and_folders():
    assert {path.name for path in SCRIPTS.iterdir() if path.is_file()} == TYPED


def loaded_by(place, *arguments):
    """The modules that are loaded, but for the command's own: Python does not say what importlib.import_module loads."""
    done = place.run(sys.executable, "-X", "importtime", SCRIPTS / "cachalot", *arguments)
    assert done.returncode == 0, done.stderr
    names = (line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:"))
    return {name.removeprefix("cachalot_command.") for name in names if name.startswith("cachalot_command.")} & MODULES.keys()


@pytest.mark.parametrize("arguments, rooms", [
    (("--version",), {"common"}), (("run", "true"), {"common", "writing"}), (("ls",), {"common", "reading"})])
def test_what_a_command_does_not_need_is_not_loaded(place, arguments, rooms):
    assert {name.split(".")[0] for name in loaded_by(place, *arguments)} == rooms


def test_a_program_starts_without_what_its_end_needs(place):
    at_once = loaded_by(place, "run", "true")
    assert not {name for name in at_once if name.startswith("reading.")} and "writing.verdict" not in at_once
    assert "writing.verdict" in loaded_by(place, "run", "--summary", "true")


def test_modules_of_the_programs_path_are_not_the_commands(place):
    """PYTHONPATH is the program's: a package there of our name, or of the library's, is not taken."""
    for name in ("cachalot_command/__init__.py", "cachalot_command/common/tools.py", "signal.py", "contextlib.py", "json.py"):
        path = place.work / "theirs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("raise SystemExit('theirs')\n")
    for arguments in (("--version",), ("run", "true"), ("ls", "--json")):
        done = place.cachalot(*arguments, env={**place.environment, "PYTHONPATH": str(place.work / "theirs")})
        assert (done.returncode, done.stderr) == (0, ""), arguments
