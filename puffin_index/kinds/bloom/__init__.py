"""The kind `bloom`: filters that tell which keys a row group certainly lacks."""
