#!/usr/bin/env python3
"""The GPU's ceilings, and the same training steps as `gpu speed` in PyTorch: forward, backward, clipping, fused AdamW, bf16 over fp32 weights.

    pytorch.py ceilings
    pytorch.py speed gpt2_small|gpt2_124m|qwen_500m|qwen_1500m eager|compiled ROWS CONTEXT STEPS

Exit status 3: there is no GPU; 4: there is no PyTorch.
"""
import os
import statistics
import sys
import time

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    print("there is no PyTorch")
    sys.exit(4)


def seconds_of(work, repeats):
    """The median, by the device's events."""
    for _ in range(3):
        work()
    times = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e-3)
    return statistics.median(times)


def ceilings():
    source = torch.randn(1 << 30, device="cuda")
    target = torch.empty_like(source)
    copy = 2 * source.nbytes / seconds_of(lambda: target.copy_(source), 10)
    del source, target
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    product = 2 * 8192**3 / seconds_of(lambda: a @ b, 20)
    print(f"ceiling  copy {copy * 1e-12:.2f} TB/s read and written; product of 8192 in bf16 {product * 1e-12:.0f} TFLOP/s; {torch.cuda.get_device_name()}")


def model_of(name, context):
    from transformers import GPT2Config, GPT2LMHeadModel, Qwen2Config, Qwen2ForCausalLM

    if name.startswith("gpt2"):
        width, layers, heads, vocabulary = (768, 12, 12, 50257) if name == "gpt2_124m" else (32, 2, 2, 257)
        config = GPT2Config(vocab_size=vocabulary, n_embd=width, n_layer=layers, n_head=heads, n_positions=max(context, 64), resid_pdrop=0, embd_pdrop=0,
                            attn_pdrop=0, use_cache=False, attn_implementation="sdpa")
        return GPT2LMHeadModel(config).cuda(), vocabulary
    width, inner, layers, heads = (896, 4864, 24, 14) if name == "qwen_500m" else (1536, 8960, 28, 12)
    config = Qwen2Config(vocab_size=151936, hidden_size=width, intermediate_size=inner, num_hidden_layers=layers, num_attention_heads=heads,
                         num_key_value_heads=2, max_position_embeddings=4096, tie_word_embeddings=True, use_cache=False, attn_implementation="sdpa")
    return Qwen2ForCausalLM(config).cuda(), 151936


def speed(name, mode, rows, context, steps):
    rows, context, steps = int(rows), int(context), int(steps)
    torch.manual_seed(1)
    model, vocabulary = model_of(name, context)
    model.train()
    trained = list(model.parameters())
    optimizer = torch.optim.AdamW([{"params": [p for p in trained if p.dim() >= 2], "weight_decay": 0.01},
                                   {"params": [p for p in trained if p.dim() < 2], "weight_decay": 0.0}], lr=1e-4, fused=True)

    def loss_of(inputs, targets):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model(input_ids=inputs).logits
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    if mode == "compiled":
        loss_of = torch.compile(loss_of)
    data = torch.randint(vocabulary, (steps + 3, rows, context + 1), device="cuda")
    times = []
    for step in range(steps + 3):  # in the first ones it compiles, and its allocator grows
        torch.cuda.synchronize()
        begin = time.perf_counter()
        loss = loss_of(data[step, :, :-1].contiguous(), data[step, :, 1:].contiguous())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        last = loss.item()
        times.append(time.perf_counter() - begin)
    times = sorted(times[3:])
    median, tokens = statistics.median_high(times), rows * context
    print(f"pytorch  {name:<12} {mode:<8} B{rows} T{context}  {tokens / median:10.0f} tokens/s ({tokens / times[-1]:.0f} to {tokens / times[0]:.0f})  "
          f"{1e3 * median:.3f} ms  taken {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB  loss {last:.3f}")


if __name__ == "__main__":
    if not torch.cuda.is_available():
        print("no GPU: PyTorch sees none")
        sys.exit(3)
    torch.set_float32_matmul_precision("high" if os.environ.get("XTRAIN_GPU_TF32") else "highest")
    {"ceilings": ceilings, "speed": speed}[sys.argv[1]](*sys.argv[2:])
