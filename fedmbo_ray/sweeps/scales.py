"""How much of a sweep or a study is run. A module of its own, because the commands' help needs nothing else."""

STANDARD = "standard"  # as the file has it
SCALES = ("smoke", STANDARD, "paper")  # that every sweep of a study has
