"""A store that speaks the S3 protocol, as far away and as narrow as wanted, which counts its requests."""
