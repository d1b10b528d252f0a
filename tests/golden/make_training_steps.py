"""Makes training_steps/*.safetensors: twenty steps whose arithmetic is that of other programs, by PyTorch and transformers. For people; no test
runs it.

    python make_training_steps.py

Every run trains llama_grouped_untied, in fp32, on the micro-batches of objectives/runs, two of them in a step, with other numbers of targets. Weight
decay is applied to all of model.parameters(), norms too; the learning rate is a schedule of transformers' get_scheduler.

    micro_batch_means   the loss of a micro-batch is the mean over its targets, and of a step the mean of these: (loss / 2).backward(), as in
                        Megatron-LM and in transformers' Trainer before 4.46
    kept_gradients      one micro-batch in a step; clip_grad_norm_ is called before backward(), and zero_grad() never
"""

import numpy as np
import torch
import transformers
from safetensors.torch import save_file

from fixture import ADAMW, HERE, as_floats, emptied
from make_objective_runs import BASE, BATCHES, FINALS, cross_entropy, draw_batches, load, logits_of

STEPS, WARMUP = 20, 5


def run(batches, micro_batches, keeps_gradients, schedule):
    model = load(HERE / BASE).train()
    optimizer = torch.optim.AdamW(model.parameters(), **ADAMW)
    scheduler = transformers.get_scheduler(schedule, optimizer, num_warmup_steps=WARMUP, num_training_steps=STEPS)
    losses, rates, norms = [], [], []
    for step in range(STEPS):
        rates.append(scheduler.get_last_lr()[0])
        if keeps_gradients:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        else:
            optimizer.zero_grad()
        loss = 0.0
        for m in range(micro_batches):
            batch = {name: values[(step * micro_batches + m) % BATCHES] for name, values in batches.items()}
            mean = cross_entropy(logits_of(model, batch), batch) / micro_batches
            mean.backward()
            loss += mean.item()
        norm = torch.sqrt(sum((p.grad.double()**2).sum() for p in model.parameters()))
        if not keeps_gradients:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        losses.append(loss)
        norms.append(norm.item())
    parameters = dict(model.named_parameters())
    print(f"{losses[0]:.4f} {losses[-1]:.4f}", "norms", f"{min(norms):.3f} to {max(norms):.3f}")
    return dict(losses=torch.tensor(losses), rates=torch.tensor(rates), norms=torch.tensor(norms)) | {f"final.{n}": parameters[n].detach() for n in FINALS}


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    batches = draw_batches(np.random.default_rng(44), load(HERE / BASE).config.vocab_size)
    print("targets", (batches["targets"] != -100).flatten(1).sum(1).tolist())
    folder = emptied("training_steps")
    folder.mkdir()
    for name, results in dict(micro_batch_means=run(batches, 2, False, "cosine"), kept_gradients=run(batches, 1, True, "linear")).items():
        save_file({key: as_floats(values) for key, values in results.items()}, folder / f"{name}.safetensors")


if __name__ == "__main__":
    main()
