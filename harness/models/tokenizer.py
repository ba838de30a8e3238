"""A tokenizer for a tiny checkpoint: one made-up word a token id."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def write(folder: Path, *, vocab_size: int, special: Mapping[int, str], roles: Mapping[str, int]) -> None:
    """Write ``tokenizer.json`` and ``tokenizer_config.json``, as the checkpoints on the Hub have them.

    No case needs text, but client code loads the tokenizer to learn the end-of-sequence token's id, and vLLM the one
    of a multimodal model.

    Args:
        folder: the checkpoint's.
        vocab_size: how many words there are.
        special: the ids that are no text, with their words.
        roles: which of them is the ``eos_token``, the ``unk_token``, and so on.
    """
    words = {special.get(token, f"<{token}>"): token for token in range(vocab_size)}
    named = {role: special[token] for role, token in roles.items()}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": token,
                "content": word,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for token, word in special.items()
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": named["unk_token"]},
    }
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **named}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
