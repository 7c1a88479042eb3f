"""Bounds that docs/limits.md promises of mapped memory, and the tests hold. figures.md has what each trace gives."""

RECORDED = 1.07   # peak reserved / peak requested of a recorded program, also where the device is behind it
MADE = 1.07       # the same of the made programs of ordinary kinds
USUAL = 1.05      # most programs keep no more
REPLACED = 1.21   # the same where hundreds of blocks of 0.1 to 8 MiB each grow in turn, or make room at random for others of any size
CERTIFIED = 1.03  # the same of the certified traces
STEP = 0.01       # part of a certified step that the driver's calls take, once it is warm
