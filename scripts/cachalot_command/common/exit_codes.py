"""The exit codes of the command."""

EXIT_CODES = {
    0: "Done. For `check`: all gates passed.",
    1: "A gate failed, a program gave no answer, or something could not be written.",
    2: "The command line is wrong.",
    3: "A report, trace, page or directory is missing or damaged, or no program was found. For `check`: there is no verdict.",
    125: "The library or one of its tools was not found. For `run`: nothing was started.",
    126: "For `run`: the program is not executable.",
    127: "For `run`: the program was not found.",
    130: "The command was interrupted (Ctrl-C).",
}
