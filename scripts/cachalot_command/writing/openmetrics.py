"""Lines of OpenMetrics, which node_exporter's textfile collector reads as well."""

from cachalot_command.common.tools import printable


def label(name, value):
    value = printable(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'{name}="{value}"'


def family(name, unit, meaning, samples):
    """One metric. All are gauges: figures of an ended process have no rate, and no name of a counter suits both node_exporter
    and readers of OpenMetrics."""
    if not samples:
        return []
    unit_line = [f"# UNIT {name} {unit}"] if unit else []
    return [f"# TYPE {name} gauge", *unit_line, f"# HELP {name} {meaning}",
            *(f"{name}{{{labels}}} {value}" if labels else f"{name} {value}"
              for labels, value in samples)]
