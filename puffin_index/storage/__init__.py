"""Bytes: fixed-width and bit-packed numbers, ranges, checksums, hashes, and files behind a FileIO."""
