"""Reading columns of row groups: only the pages that hold wanted rows, where that pays."""
