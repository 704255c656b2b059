"""What commands show on a terminal: tables, lines and progress."""
