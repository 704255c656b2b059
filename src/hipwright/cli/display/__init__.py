"""The commands' output on a terminal: tables, lines and progress."""
