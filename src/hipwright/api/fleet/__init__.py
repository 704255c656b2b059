"""Use cases whose candidates are judged in the seats of a fleet (docs/fleet.md): the command's side and the seats'."""
