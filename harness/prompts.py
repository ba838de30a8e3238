"""The prompts that every capture case uses: eight distinct lengths, ids from a fixed rule."""

from __future__ import annotations

# Not sorted: a runner that reorders rows by length or by kind must be noticed. 64 spans blocks of any size.
LENGTHS = (5, 17, 40, 3, 1, 64, 33, 9)


def prompts(vocab_size: int, lengths: tuple[int, ...] = LENGTHS) -> list[list[int]]:
    """One prompt a length; ids 2 and up, as 0 and 1 are special, and no two prompts share a prefix."""
    return [
        [2 + (number * 31 + position * 7 + number * position) % (vocab_size - 2) for position in range(length)]
        for number, length in enumerate(lengths)
    ]
