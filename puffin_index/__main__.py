"""`python -m puffin_index` is `puffin-index`."""

from importlib import import_module

if __name__ == "__main__":
    # By its name: the commands on queries are the planner's, which stands above this package.
    import_module("planner.commands.main").main(prog_name="python -m puffin_index")
