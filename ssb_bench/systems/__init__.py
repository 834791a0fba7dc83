"""Workers: one process for each system that is compared, each in an environment that has it."""
