"""The offline auditors' ground: known honest and hostile candidates, and what each verifier makes of them."""
