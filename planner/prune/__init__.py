"""Pruning: stages that drop row groups, from zone maps to row sets, under the cost gate."""
