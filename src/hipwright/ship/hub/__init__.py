"""The parts of a Hugging Face kernel: native operators, Python texts, and the launchers copied into each."""
