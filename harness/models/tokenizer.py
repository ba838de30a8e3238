"""A tokenizer for a tiny checkpoint: one made-up word a token id."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def write(folder: Path, *, vocab_size: int, bos_token_id: int, eos_token_id: int) -> None:
    """Write ``tokenizer.json`` and ``tokenizer_config.json``, as the checkpoints on the Hub have them.

    No case needs text, but client code loads the tokenizer to learn the end-of-sequence token's id.
    """
    words = {f"<{token}>": token for token in range(vocab_size)}
    bos, eos = f"<{bos_token_id}>", f"<{eos_token_id}>"
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": words[word],
                "content": word,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for word in (bos, eos)
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": bos},
    }
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": bos,
        "eos_token": eos,
        "unk_token": bos,
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
