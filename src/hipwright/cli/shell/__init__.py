"""The command line around the commands: help, examples, the config file, and what is wrong with a wrong line."""
