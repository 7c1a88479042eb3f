"""The package that pip installs: the library, its tools and the command lie in this folder."""

import os
import sys


def main():
    """Runs the command in this process."""
    command = os.path.join(os.path.dirname(os.path.realpath(__file__)), "cachalot")
    with open(command, "rb") as file:
        exec(compile(file.read(), command, "exec"), {"__name__": "__main__", "__file__": command})  # noqa: S102
    sys.exit(0)
