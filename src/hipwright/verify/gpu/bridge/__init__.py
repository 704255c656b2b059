"""Memory of a candidate's worker through which inputs, states and results pass without the parent."""
