"""Benchmarks: extraction beside the other ways (docs/how-to/measure-extraction.md), and what the suite costs."""
