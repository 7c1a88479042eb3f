"""The parser of command lines for all commands but `run` and `check`, which have grammars of their own."""

from cachalot_command.common.tools import Failure, meant


def split(command, arguments, flags=(), values=()):
    """Words and options of a command line: ([word], {option: value})."""
    words, options = [], {}
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        if argument == "--":
            words += rest
        elif name in values:
            options[name] = value if equals else next(rest, None)
            if options[name] is None:
                raise Failure(2, f"{name} needs a value")
        elif argument in flags:
            options[argument] = True
        elif equals and name in flags:
            raise Failure(2, f"{name} takes no value")
        elif argument.startswith("-") and argument != "-":
            raise Failure(2, f"unknown option {argument}; see `cachalot {command} --help`{meant(name, (*flags, *values))}")
        else:
            words.append(argument)
    return words, options
