"""The environment as other libraries want it: TRL, verl, verifiers, OpenEnv; each thin, none needs another."""
