"""The conformance kit: segments, questions about them, and a reader in another language."""
