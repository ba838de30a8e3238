"""Tiny checkpoints, written from a seed: real architectures, no network."""
