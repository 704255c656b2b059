"""Items become groups; each group becomes one kernel."""
