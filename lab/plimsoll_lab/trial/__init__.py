"""One measurement: its life from a fresh server to its judgement."""
