"""Makes megatron_runs/expected.safetensors: fifty steps of pretrain_llama with Megatron-LM's arithmetic, written out in PyTorch. For people; no test runs it.

    python make_megatron_runs.py

Nothing of Megatron-LM or AscendSpeed is imported: what their programs compute is written here from their published code. The model is that of
benchmarks/model (transformers' LLaMA, fp32), the text is made by a rule, the tokens are those of its tokenizer, each text with an end of document.

    iterations  --train-iters 50 --micro-batch-size 2 --global-batch-size 8 --lr 4e-3 --min-lr 4e-4 --lr-decay-style cosine --lr-warmup-iters 5
                --lr-decay-iters 45 --weight-decay 0.1 --adam-beta2 0.95 --clip-grad 1.0 --seq-length 32 --seed 1234
    samples     --train-samples 255 --micro-batch-size 2 --global-batch-size 8 --rampup-batch-size 2 2 100 --lr 4e-3 --min-lr 4e-4
                --lr-decay-style linear --lr-warmup-samples 45 --lr-decay-samples 240, and the rest as before

Of every step: the loss (the mean of the micro-batches' means over their loss mask), the gradients' norm before clipping, the learning rate, the samples.
"""

import json
import math

import numpy as np
import torch
import transformers
from safetensors.torch import save_file
from tokenizers import Tokenizer

from fixture import HERE, emptied
from make_gpt_samples import gpt_index, split

MODEL = HERE / "benchmarks" / "model"
WORDS = "the a river stone bird walks sings under over seven old bright and then quietly again".split()
SEQ_LENGTH, SEED, MICRO_BATCH, GLOBAL_BATCH = 32, 1234, 2, 8
LR, MIN_LR, WEIGHT_DECAY, CLIP = 4e-3, 4e-4, 0.1, 1.0
BETA1, BETA2, EPS = 0.9, 0.95, 1e-8


def texts():
    return [" ".join(WORDS[(7 * d * d + 3 * i * i + d * i) % 16] for i in range(5 + d * 11 % 23)) for d in range(40)]


def samples_in_order(count):
    """GPTDataset: the tokens of the training part's samples, seq_length + 1 each, in the order of training."""
    tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    end = json.loads((MODEL / "config.json").read_text())["eos_token_id"]
    documents = [tokenizer.encode(text).ids + [end] for text in texts()]
    first, last = split("969,30,1", len(documents))[:2]
    index = gpt_index([len(d) for d in documents], first, last, SEQ_LENGTH, count, SEED)
    begins = np.asarray(index["samples"]).reshape(-1, 2)
    result = []
    for s in index["order"]:
        document, offset = (int(v) for v in begins[s])
        tokens = []
        while len(tokens) < SEQ_LENGTH + 1:
            tokens += documents[index["documents"][document]][offset:]
            document, offset = document + 1, 0
        result.append(tokens[:SEQ_LENGTH + 1])
    return result


def learning_rate(samples, warmup, decay, style):
    """OptimizerParamScheduler.get_lr, whose num_steps are samples."""
    if warmup > 0 and samples <= warmup:
        return LR * samples / warmup
    if samples > decay:
        return MIN_LR
    ratio = (samples - warmup) / (decay - warmup)
    coefficient = 0.5 * (math.cos(math.pi * ratio) + 1.0) if style == "cosine" else 1.0 - ratio
    return MIN_LR + coefficient * (LR - MIN_LR)


class AdamW:
    """apex's FusedAdam with adam_w_mode: the decay is added to the update. No decay of biases and of tensors of one dimension."""

    def __init__(self, named):
        self.state = [(p, torch.zeros_like(p), torch.zeros_like(p), 0.0 if p.dim() == 1 or name.endswith(".bias") else WEIGHT_DECAY) for name, p in named]
        self.steps = 0

    def step(self, lr):
        self.steps += 1
        with torch.no_grad():
            for p, m, v, decay in self.state:
                m.copy_(BETA1 * m + (1 - BETA1) * p.grad)
                v.copy_(BETA2 * v + (1 - BETA2) * p.grad * p.grad)
                denominator = (v / (1 - BETA2**self.steps)).sqrt() + EPS
                p.sub_(lr * ((m / (1 - BETA1**self.steps)) / denominator + decay * p))


def constant(consumed):
    return GLOBAL_BATCH


def rampup(start, increment, samples):
    """RampupBatchsizeNumMicroBatches.update."""
    per_increment = samples / ((GLOBAL_BATCH - start) // increment)
    return lambda consumed: GLOBAL_BATCH if consumed > samples else start + int(consumed / per_increment) * increment


def iterations_of(train_samples, batch_at, ramp_samples):
    """update_train_iters."""
    iterations, consumed = 0, 0
    while consumed <= ramp_samples:
        consumed += batch_at(consumed)
        iterations += 1
    return iterations + (train_samples - consumed) // GLOBAL_BATCH


def run(iterations, requested, batch_at, warmup, decay, style):
    data = samples_in_order(requested)
    model = transformers.AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32, attn_implementation="eager").train()
    named = list(model.named_parameters())
    optimizer = AdamW(named)
    consumed, out = 0, dict(losses=[], norms=[], rates=[], samples=[])
    for _ in range(iterations):
        lr, batch = learning_rate(consumed, warmup, decay, style), batch_at(consumed)
        micro_batches = batch // MICRO_BATCH
        model.zero_grad()
        loss = 0.0
        for m in range(micro_batches):
            begin = consumed + m * MICRO_BATCH
            rows = torch.tensor(data[begin:begin + MICRO_BATCH])
            labels, mask = rows[:, 1:], torch.ones(MICRO_BATCH, SEQ_LENGTH)
            logits = model(input_ids=rows[:, :-1]).logits
            losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
            mean = (losses * mask).sum() / mask.sum()
            (mean / micro_batches).backward()
            loss += mean.item() / micro_batches
        norm = math.sqrt(sum(float((p.grad.double()**2).sum()) for _, p in named))
        factor = CLIP / (norm + 1.0e-6)
        if factor < 1.0:
            for _, p in named:
                p.grad.mul_(factor)
        optimizer.step(lr)
        consumed += batch
        for key, value in zip(out, (loss, norm, lr, consumed)):
            out[key].append(value)
    losses, norms = out["losses"], out["norms"]
    print(f"{iterations} steps, {consumed} samples, loss {losses[0]:.4f} to {losses[-1]:.4f}, norms {min(norms):.3f} to {max(norms):.3f}")
    return out


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    ramp = rampup(2, 2, 100)
    train_samples = 255
    runs = dict(iterations=run(50, 50 * GLOBAL_BATCH, constant, 5 * GLOBAL_BATCH, 45 * GLOBAL_BATCH, "cosine"),
                samples=run(iterations_of(train_samples, ramp, 100), train_samples, ramp, 45, 240, "linear"))
    folder = emptied("megatron_runs")
    folder.mkdir(exist_ok=True)
    save_file({f"{name}.{key}": torch.tensor(values, dtype=torch.float32) for name, one in runs.items() for key, values in one.items()},
              folder / "expected.safetensors")
    versions = dict(torch=torch.__version__, transformers=transformers.__version__, numpy=np.__version__)
    (HERE / "VERSIONS_megatron_runs").write_text("".join(f"{name} {version}\n" for name, version in versions.items()))


if __name__ == "__main__":
    main()
