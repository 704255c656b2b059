"""Generated graphs for the engine's templates: strategies, the judge of one graph, and campaigns (docs/engine.md)."""
