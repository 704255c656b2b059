"""`hipwright model`: whole models."""
