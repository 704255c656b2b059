"""Templates for recurrent layers."""
