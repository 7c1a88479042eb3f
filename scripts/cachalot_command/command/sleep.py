"""cachalot sleep and wake: device memory of running programs to the host, and back."""

from cachalot_command.command.pages import ask

SLEEP_HELP = """\
usage: cachalot sleep PID|--all [--partial] [--hold] [--timeout SECONDS]

Moves the live bytes of a running program to host memory and gives its device
memory back. The program wakes when it next needs device memory: that call
waits. Addresses and contents stay. A program that cannot sleep says why, and
nothing of it has changed.
  --all      every running program of this user that uses the cache
  --partial  memory in ordinary segments stays on the device
  --hold     only `cachalot wake` wakes it
  --timeout  how long to wait for an answer (60)

Exit code: 0, 1 no answer or not asleep, 2 usage, 3 no such program.
example: cachalot sleep 4711
"""

WAKE_HELP = """\
usage: cachalot wake PID|--all [--timeout SECONDS]

Moves the bytes of a sleeping program back to the device, at the same addresses.
  --all      every running program of this user that uses the cache
  --timeout  how long to wait for an answer (60)

Exit code: 0, 1 no answer or still asleep, 2 usage, 3 no such program.
example: cachalot wake 4711
"""


def with_patience(arguments):
    """Memory moves for seconds."""
    given = any(word == "--timeout" or word.startswith("--timeout=") for word in arguments)
    return arguments if given else [*arguments, "--timeout=60"]


def sleep(arguments):
    """cachalot sleep."""
    action = "sleep" + "".join(f"-{name}" for name in ("partial", "hold") if f"--{name}" in arguments)
    return ask("sleep", action, with_patience(arguments), ("--partial", "--hold"))


def wake(arguments):
    """cachalot wake."""
    return ask("wake", "wake", with_patience(arguments), ())
