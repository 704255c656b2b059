"""Optimisers of other projects as reference arms (the extra `arms`)."""
