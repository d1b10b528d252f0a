#!/bin/sh
# transformers 5.24.0 (with torch 2.15.0, accelerate 1.15.0): the router's balancing loss of Mixtral under Trainer.
#
# One would expect: the same samples in one optimizer step give the same loss however they are split into micro-batches,
#   as Trainer does for the language model's loss, and router_aux_loss_coef counts with label smoothing too.
# What happens:
#   - The model adds router_aux_loss_coef * aux_loss to the loss of each micro-batch. Trainer sums the micro-batches' losses
#     (each is already divided by the step's number of targets) and does not divide this term, so it counts once for each:
#     with N accumulation steps it is about N times as strong.
#   - With label_smoothing_factor Trainer takes the labels away and computes the loss from the logits: the balancing loss
#     is computed, and then not used: nothing trains the router towards balance. No warning in either case.
# What it means for a user: divide router_aux_loss_coef by gradient_accumulation_steps, and do not use label smoothing where
#   the experts must be balanced. Losses logged with another number of accumulation steps cannot be compared.
# Seen on 2026-11-27.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
export HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1
python3 -m venv "$dir/env"
"$dir/env/bin/pip" -q install torch==2.15.0 transformers==5.24.0 accelerate==1.15.0
cd "$dir"
env/bin/python - << 'EOF'
import warnings

import accelerate
import torch
import transformers
from transformers import MixtralConfig, MixtralForCausalLM, Trainer, TrainingArguments

warnings.simplefilter("ignore", FutureWarning)
transformers.utils.logging.set_verbosity_error()
print("transformers", transformers.__version__, "torch", torch.__version__, "accelerate", accelerate.__version__)
generator = torch.Generator().manual_seed(0)
samples = [{"input_ids": row, "labels": row} for row in torch.randint(0, 32, (6, 8), generator=generator)]


def step(size, coefficient, smoothing=0.0):
    torch.manual_seed(1)
    model = MixtralForCausalLM(MixtralConfig(
        vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2, output_router_logits=True,
        router_aux_loss_coef=coefficient, initializer_range=0.3))
    arguments = TrainingArguments(
        output_dir="out", per_device_train_batch_size=size, gradient_accumulation_steps=6 // size, max_steps=1, optim="sgd",
        learning_rate=0.0, logging_steps=1, save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True,
        label_smoothing_factor=smoothing, max_grad_norm=1e9)
    trainer = Trainer(model=model, args=arguments, train_dataset=samples)
    trainer.train()
    log = trainer.state.log_history[0]
    return float(log["loss"]), float(log["grad_norm"])


def table(title, coefficient, smoothing=0.0):
    print(f"\n{title}")
    rows = []
    for size in (6, 3, 2):
        rows.append(step(size, coefficient, smoothing))
        print(f"{size} samples x {6 // size} accumulation steps: loss {rows[-1][0]:.4f}  norm of the gradient {rows[-1][1]:.4f}")
    return rows


off = table("router_aux_loss_coef 0", 0.0)
on = table("router_aux_loss_coef 0.5", 0.5)
added = [with_it[0] - without[0] for with_it, without in zip(on, off)]
print("the balancing term in the loss:", [round(value, 3) for value in added])
smooth = [table(f"label_smoothing_factor 0.1, router_aux_loss_coef {c}", c, 0.1) for c in (0.0, 100.0)]

assert max(row[0] for row in off) - min(row[0] for row in off) < 2e-3
assert added[0] > 0.9 and 1.9 < added[1] / added[0] < 2.2 and 2.8 < added[2] / added[0] < 3.4
assert all(abs(a - b) < 1e-4 for first, second in zip(*smooth) for a, b in zip(first, second))
print("\nas expected by this finding")
EOF
