"""Hidden states of many prompts into files, at nearly the speed of the prefill that computes them.

`ring`, `sample`, `writers`, `run` and `layouts` are the worker's half, without torch; `staging`, `taps` and
`extension` are what of it needs torch; `jobs` is what both halves speak of, and `feed` the driver's.
"""
