"""The reference pages: every option, variable, field of the report and exit code has its text, and no text is of another."""

import ast
import re

import pytest
from conftest import BUILD, ROOT, SCHEMA, built

from cachalot_command.command import reference
from cachalot_command.common.exit_codes import EXIT_CODES
from cachalot_command.common.variables import VARIABLES

PACKAGE = ROOT / "scripts/cachalot_command"
LISTS = "".join((ROOT / "stats" / name).read_text() for name in ("counters/lists.h", "page/layout.h"))
UNITS = {"_bytes": "[bytes]", "_ns": "[ns]", "_ratio": "[0 to 1]"}  # by the end of a name
SIMULATED = "CACHALOT_SIM_"  # of the simulated device: only tests set them


def listed(name):
    """Names of an X-macro list of the library."""
    body = re.search(rf"#define {name}\(X\)(.*?)\n(?![ \t])", LISTS, re.S)[1]
    return set(re.findall(r"\bX\((\w+)", body))


def properties(value, place="", found=None):
    """{path in the schema: property}."""
    found = {} if found is None else found
    for key, inner in value.items() if isinstance(value, dict) else ():
        if key == "properties":
            found.update({f"{place}/{name}": field for name, field in inner.items()})
        properties(inner, f"{place}/{key}", found)
    return found


def rows():
    return reference.option_rows(reference.options_text())


@pytest.fixture(autouse=True)
def tools(monkeypatch):
    monkeypatch.setenv("CACHALOT_LIBRARY", str(BUILD / "libcachalot.so"))
    built("cachalot-page")


def test_each_option_has_its_text():
    """The library's own table of options is the source; examples in a text are understood."""
    assert len(rows()) >= 12
    for name, default, values, _, meaning in rows():
        assert re.fullmatch(r"[a-z0-9_]+", name) and default and values, name
        assert re.fullmatch(r"\S.*\.", meaning) and len(meaning) > 20, name


def test_no_text_names_an_option_that_does_not_exist(place):
    names = {name for name, *_ in rows()}
    for name, _, _, _, meaning in rows():
        for key, value in re.findall(r"\b([a-z_]+):([a-z]+)\b", meaning):
            assert key in names and place.tool("conf", f"{key}:{value}").returncode == 0, name
    place.environment["CACHALOT_LIBRARY"] = str(BUILD / "libcachalot.so")
    shown = place.cachalot("help", "conf").stdout
    assert set(re.findall(r"^  (\w+)\*? \(default: ", shown, re.M)) == names


def test_pytorchs_options_are_marked(place):
    marked = {name for name, _, _, is_pytorch, _ in rows() if is_pytorch}
    shown = place.cachalot("help", "conf", env={**place.environment, "CACHALOT_LIBRARY": str(BUILD / "libcachalot.so")}).stdout
    assert set(re.findall(r"^  (\w+)\* ", shown, re.M)) == marked
    assert "max_split_size_mb" in marked and "free_mode" not in marked


def test_each_variable_has_its_text():
    """Those that a source names, as a text of its own or at the begin of one."""
    sources = [path for folder in ("allocator", "interpose", "stats", "scripts") for path in (ROOT / folder).rglob("*")
               if path.suffix in (".c", ".h", ".py") or path.name == "cachalot"]
    named = {name for path in sources if path.name != "variables.py"
             for name in re.findall(r'"(CACHALOT_[A-Z_]*[A-Z])', path.read_text())}
    assert named == {name for name, text in VARIABLES.items() if text}
    assert all(name.startswith(SIMULATED) for name, text in VARIABLES.items() if not text)


def test_each_field_has_its_text_with_its_unit():
    fields = reference.Fields(SCHEMA)
    for path, field in properties(SCHEMA).items():
        text = fields.resolved(field).get("description", "")
        assert text, path
        unit = next((unit for end, unit in UNITS.items() if path.endswith(end)), None)
        of_type = fields.resolved(field).get("properties")
        assert unit is None or of_type or text.endswith(unit), f"{path} ends in {unit}"
        assert unit or path.endswith(("bytes", "max_split_size")) or "[bytes]" not in text, path


def test_no_text_names_a_field_that_does_not_exist():
    """Words with an underscore are names: of fields, their values, or options."""
    values = {value for field in properties(SCHEMA).values() for value in field.get("enum", ())}
    known = {path.rpartition("/")[2] for path in properties(SCHEMA)} | {name for name, *_ in rows()} | values
    for path, field in properties(SCHEMA).items():
        words = set(re.findall(r"\b[a-z]+(?:_[a-z0-9]+)+\b", field.get("description", "")))
        assert words <= known, path


@pytest.mark.parametrize("name, place", [
    ("COUNTER_LIST", "$defs/counters"), ("COUNTER_LIST", "$defs/memory_stats"),
    ("STAT_LIST", "$defs/device/properties/statistics"), ("MOMENT_LIST", "$defs/fragmentation"),
    ("COVERAGE_LIST", "properties/coverage/properties/counters"), ("SUBMISSION_LIST", "properties/coverage/properties/submissions"),
    ("UNCACHED_LIST", "properties/others")])
def test_the_schema_has_what_the_library_counts(name, place):
    found = SCHEMA
    for key in place.split("/"):
        found = found[key]
    more = {"num_sync_all_streams", "max_split_size"} if place.endswith("memory_stats") else \
        {"utilization_ratio", "external_ratio", "internal_ratio"} if name == "MOMENT_LIST" else set()
    assert set(found["properties"]) == listed(name) | more and len(listed(name)) > 5


def codes_of(path):
    """Exit codes that a module names: where it fails, and in the text of its help."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("Failure", "Stranger") and \
                isinstance(node.args[0], ast.Constant):
            yield node.args[0].value
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "usage: cachalot" in node.value:
            said = re.search(r"Exit code:(.*?)\n(?:example|\n)", node.value, re.S)[1]
            yield from map(int, re.findall(r"(?<![-\d])\d{1,3}\b(?= [a-zA-Z(])|(?<![-\d])\b0\b", said))


def test_each_exit_code_has_its_text():
    used = {code for path in [*PACKAGE.rglob("*.py"), ROOT / "scripts/cachalot"] for code in codes_of(path)}
    assert used | {130} == set(EXIT_CODES)


@pytest.mark.parametrize("topic", list(reference.PAGES))
def test_pages_fit_a_terminal(place, topic):
    place.environment["CACHALOT_LIBRARY"] = str(BUILD / "libcachalot.so")
    done = place.cachalot("help", topic)
    assert (done.returncode, done.stderr) == (0, "") and max(map(len, done.stdout.splitlines())) <= 80
    assert not re.search(r"\s$", done.stdout[:-1]) and "\n\n\n" not in done.stdout
    assert f"help {topic}" in place.cachalot("--help").stdout


def test_fields_can_be_chosen(place):
    shown = place.cachalot("help", "report", "totals.leaked", "oom_events.would").stdout
    assert re.findall(r"^ +(\w+)(?:\[\])?  ", shown, re.M) == ["leaked_bytes", "leaked_blocks", "would_serve"]
    assert place.cachalot("help", "report", "none").returncode == 2
    assert place.cachalot("help", "exit", "1").returncode == 2


def test_all_fields_are_shown(place):
    shown = place.cachalot("help", "report").stdout
    for path in properties(SCHEMA):
        if path.startswith(("/properties", "/$defs")) and "/memory_stats/num_" not in path:
            assert re.search(rf"^ +{path.rpartition('/')[2]}(\[\]|\.KEY)?( |$)", shown, re.M), path
