"""VLLM's own extraction as a client: the method ``extract_hidden_states`` with the example connector."""
