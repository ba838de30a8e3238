"""Conformance of code that captures hidden states through vLLM.

Importing this package imports neither torch nor vllm.
"""

__version__ = "0.1.0"
