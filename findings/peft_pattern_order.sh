#!/bin/sh
# peft 0.21.2 (with transformers 5.24.0, torch 2.15.0): an adapter with overlapping patterns changes when it is saved.
#
# One would expect: an adapter that is saved and loaded again computes what it computed before.
# What happens: the first key of rank_pattern and of alpha_pattern that matches a layer counts, but save_pretrained
#   writes the keys of adapter_config.json in sorted order, so after loading another key may be the first to match.
#   - alpha_pattern: the adapter loads without an error or a warning, and that layer has another scale: other logits.
#   - rank_pattern: the adapter does not load (size mismatch).
# What it means for a user: do not rely on the order of the keys. Make the patterns so that no two match the same layer;
#   a reader of such a file cannot know the order that was meant when two keys match.
# Seen on 2026-11-27.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
export HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1
python3 -m venv "$dir/env"
"$dir/env/bin/pip" -q install torch==2.15.0 transformers==5.24.0 peft==0.21.2
cd "$dir"
env/bin/python - << 'EOF'
import json
import warnings

import peft
import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM

warnings.simplefilter("ignore", FutureWarning)
transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
print("peft", peft.__version__, "transformers", transformers.__version__, "torch", torch.__version__)
tokens = torch.arange(8)[None]
layer = "base_model.model.model.layers.1.self_attn.k_proj"


def base():
    torch.manual_seed(1)
    return LlamaForCausalLM(LlamaConfig(vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
                                        num_attention_heads=2, num_key_value_heads=2, initializer_range=0.3)).eval()


def logits(model):
    with torch.no_grad():
        return model(tokens).logits


def save(name, **patterns):
    # k_proj of layer 1 is meant to differ from k_proj elsewhere: the special key stands before the general one.
    torch.manual_seed(2)
    config = peft.LoraConfig(r=4, lora_alpha=4, target_modules=["k_proj"], init_lora_weights=False, **patterns)
    model = peft.get_peft_model(base(), config).eval()
    model.save_pretrained(name)
    return model


print("\n1. alpha_pattern")
pattern = {"layers.1.self_attn.k_proj": 64, "k_proj": 4}
before = save("alpha", alpha_pattern=pattern)
saved = json.load(open("alpha/adapter_config.json"))["alpha_pattern"]
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    after = peft.PeftModel.from_pretrained(base(), "alpha").eval()
told = [str(warning.message) for warning in told if warning.category is not FutureWarning]
scales = [model.get_submodule(layer).scaling["default"] for model in (before, after)]
difference = (logits(before) - logits(after)).abs().max().item()
print("keys as given:", list(pattern), " keys in adapter_config.json:", list(saved))
print("scale of layers.1.self_attn.k_proj: trained with", scales[0], " loaded with", scales[1])
print("largest difference of the logits:", round(difference, 4), " warnings:", told)

print("\n2. rank_pattern")
save("rank", rank_pattern={"layers.1.self_attn.k_proj": 8, "k_proj": 2})
try:
    peft.PeftModel.from_pretrained(base(), "rank")
    error = ""
except RuntimeError as raised:
    error = str(raised)
print("loading it:", [line.strip() for line in error.split("\n") if "size mismatch" in line] or "no error")

print("\n3. the same alpha_pattern without an overlap")
before = save("apart", alpha_pattern={"layers.1.self_attn.k_proj": 64, "layers.0.self_attn.k_proj": 4})
after = peft.PeftModel.from_pretrained(base(), "apart").eval()
apart = (logits(before) - logits(after)).abs().max().item()
print("largest difference of the logits:", apart)

assert list(saved) == sorted(pattern) != list(pattern)
assert scales == [16.0, 1.0] and difference > 0.01 and not told
assert "size mismatch" in error
assert apart == 0
print("\nas expected by this finding")
EOF
