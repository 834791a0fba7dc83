"""Containers of blobs: Puffin files and Paimon's file index container."""
