"""The prompts of the cases: sets of distinct lengths, with token ids from a fixed rule."""

from __future__ import annotations

# Not sorted: a runner that reorders rows by length or by kind must be noticed. 64 spans blocks of any size.
LENGTHS = (5, 17, 40, 3, 1, 64, 33, 9)
# Of the budget of the tight settings, 32 tokens: 3 and 3.5 times.
LONG = (96, 112)
# Each fits the tight settings' KV blocks, two do not; yet the second begins while the first is short, also where the
# scheduler wants room for all of a prompt (scheduler_reserve_full_isl, since 0.19.1).
CROWD = (150, 120, 110, 100)
# The longest that fits the other settings, with the token that is generated. Its beginning fits the tight ones.
LIMIT = 511
# Three times the slots of the tight settings, with rests of one token after full chunks.
MANY = (33, 2, 49, 16, 5, 65, 31, 1, 48, 20, 17, 3)
# Two blocks of 32 tokens and a bit, then a tail of each one's own.
SHARED_PREFIX = 70
TAILS = (8, 21)


def prompts(vocab_size: int, lengths: tuple[int, ...] = LENGTHS, *, seed: int = 0) -> list[list[int]]:
    """One prompt a length; ids 2 and up, as 0 and 1 are special, and no two prompts of a set share a prefix."""
    return [
        [2 + (seed + number * 31 + position * 7 + number * position) % (vocab_size - 2) for position in range(length)]
        for number, length in enumerate(lengths)
    ]


def sets(vocab_size: int) -> dict[str, list[list[int]]]:
    """All sets by name; ``batch`` is what every capture case uses."""
    (prefix,) = prompts(vocab_size, (SHARED_PREFIX,), seed=11)
    return {
        "batch": prompts(vocab_size),
        "long": prompts(vocab_size, LONG, seed=1),
        "shared": [prefix + tail for tail in prompts(vocab_size, TAILS, seed=2)],
        "limit": prompts(vocab_size, (LIMIT,), seed=5),
        "crowd": prompts(vocab_size, CROWD, seed=3),
        "many": prompts(vocab_size, MANY, seed=4),
    }
