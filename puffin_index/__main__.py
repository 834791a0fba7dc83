"""`python -m puffin_index` is `puffin-index`, as it is installed."""

from importlib.metadata import entry_points

if __name__ == "__main__":
    command, *_ = entry_points(group="console_scripts", name="puffin-index")
    command.load()(prog_name="python -m puffin_index")
