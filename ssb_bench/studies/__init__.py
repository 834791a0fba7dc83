"""Studies: sweep, scale, appends, kernels, what the hook and a build in the background cost."""
