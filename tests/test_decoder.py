"""Module trees as vLLM's models have them; live, the suite finds the layers of DeepseekV2 and of KimiK25."""

from __future__ import annotations

from types import SimpleNamespace as Module
from typing import Any

import pytest

from harness.decoder import decoder_stack, loaded_model

LAYERS = ["layer 0", "layer 1"]


class Wrapper:
    """A multimodal model that says where its language model is."""

    def __init__(self, language_model: Any) -> None:
        self.vision_tower = Module(layers=["not a decoder layer"])
        self.language_model = language_model

    def get_language_model(self) -> Any:
        return self.language_model


CAUSAL = Module(model=Module(layers=LAYERS), lm_head=Module())

TREES = {
    "deepseek v2 and v3, kimi k2, llama: ForCausalLM > Model": CAUSAL,
    "kimi k2.5 of 0.15: the language model is the stack": Wrapper(Module(layers=LAYERS)),
    "kimi k2.5 since 0.16.0: the language model is a ForCausalLM": Wrapper(CAUSAL),
    "llava-like, without get_language_model": Module(vision_tower=Module(layers=[]), language_model=CAUSAL),
    "the stack itself": Module(layers=LAYERS),
}


@pytest.mark.parametrize("tree", TREES)
def test_layers_are_found_by_structure(tree: str) -> None:
    assert decoder_stack(TREES[tree]).layers is LAYERS


def test_model_without_layers_is_refused_with_the_way_that_was_gone() -> None:
    with pytest.raises(RuntimeError, match="Wrapper > SimpleNamespace"):
        decoder_stack(Wrapper(Module(model=Module(blocks=[]))))


def test_model_is_taken_out_of_what_the_runner_wraps_around_it() -> None:
    assert loaded_model(Module(model="bare")) == "bare"
    assert loaded_model(Module(model="wrapped", get_model=lambda: "bare")) == "bare"
