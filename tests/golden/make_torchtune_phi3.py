"""Makes phi3_lora_parts: an adapter as torchtune's lora_phi3 has it, of q_proj, v_proj, gate_proj and up_proj apart, where files have the fused qkv_proj and
gate_up_proj; its loss, gradients and ten AdamW steps. For people; no test runs it.

    python make_torchtune_phi3.py

The weights are those of phi3, here with RoPE on whole heads and without a sliding window, as torchtune's model is. The folder is what peft reads: here it is
checked that peft beside transformers' Phi-3 gives torchtune's logits. torchtune 0.6.1 needs torchao 0.9 to be imported, nothing of it is used.
"""

import json
import pathlib

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torchtune.models.phi3._component_builders import lora_phi3
from torchtune.modules.peft import get_adapter_params, set_trainable_params

HERE = pathlib.Path(__file__).resolve().parent
LAYERS, HEADS, KV, HIDDEN, INNER, VOCABULARY = 2, 4, 2, 32, 36, 53
RANK, ALPHA, SEED = 3, 12.0, 56
MODULES = {"attn.q_proj": HIDDEN, "attn.v_proj": HIDDEN // 2, "attn.output_proj": HIDDEN, "mlp.w1": INNER, "mlp.w3": INNER, "mlp.w2": HIDDEN}
BATCH, TIME, STEPS = 2, 11, 10


def model_with_weights():
    model = lora_phi3(["q_proj", "v_proj", "output_proj"], apply_lora_to_mlp=True, vocab_size=VOCABULARY, num_layers=LAYERS, num_heads=HEADS, num_kv_heads=KV,
                      embed_dim=HIDDEN, intermediate_dim=INNER, max_seq_len=40, norm_eps=1e-5, rope_base=10000, lora_rank=RANK, lora_alpha=ALPHA)
    files = load_file(HERE / "phi3" / "model.safetensors")
    weights = {"tok_embeddings.weight": files["model.embed_tokens.weight"], "norm.scale": files["model.norm.weight"], "output.weight": files["lm_head.weight"]}
    kv = HIDDEN // HEADS * KV
    for layer in range(LAYERS):
        there, here = f"model.layers.{layer}.", f"layers.{layer}."
        q, k, v = files[there + "self_attn.qkv_proj.weight"].split([HIDDEN, kv, kv])
        gate, up = files[there + "mlp.gate_up_proj.weight"].split([INNER, INNER])
        weights |= {here + "attn.q_proj.weight": q, here + "attn.k_proj.weight": k, here + "attn.v_proj.weight": v,
                    here + "attn.output_proj.weight": files[there + "self_attn.o_proj.weight"], here + "mlp.w1.weight": gate, here + "mlp.w3.weight": up,
                    here + "mlp.w2.weight": files[there + "mlp.down_proj.weight"], here + "sa_norm.scale": files[there + "input_layernorm.weight"],
                    here + "mlp_norm.scale": files[there + "post_attention_layernorm.weight"]}
    rng = np.random.default_rng(SEED)
    for name, parameter in get_adapter_params(model).items():
        weights[name] = torch.from_numpy(rng.standard_normal(parameter.shape) * 0.2).float()
    model.load_state_dict(weights)
    set_trainable_params(model, get_adapter_params(model))
    return model, rng


def of_module(tensors, layer, outputs, parts):
    """One adapter of a fused module: A of the parts one below the other, B in blocks. `parts`: name and first row of each."""
    a = torch.cat([tensors[f"layers.{layer}.{part}.lora_a.weight"] for part, _ in parts])
    b = torch.zeros(outputs, RANK * len(parts))
    for i, (part, row) in enumerate(parts):
        own = tensors[f"layers.{layer}.{part}.lora_b.weight"]
        b[row:row + own.shape[0], i * RANK:(i + 1) * RANK] = own
    return {"lora_A.weight": a, "lora_B.weight": b}


def as_in_files(tensors):
    """Values or gradients of torchtune's adapters, as peft names and has them."""
    rows = HIDDEN + 2 * (HIDDEN // HEADS * KV)
    result = {}
    for layer in range(LAYERS):
        modules = {"self_attn.qkv_proj": (rows, [("attn.q_proj", 0), ("attn.v_proj", rows - HIDDEN // HEADS * KV)]),
                   "self_attn.o_proj": (HIDDEN, [("attn.output_proj", 0)]), "mlp.gate_up_proj": (2 * INNER, [("mlp.w1", 0), ("mlp.w3", INNER)]),
                   "mlp.down_proj": (HIDDEN, [("mlp.w2", 0)])}
        for module, (outputs, parts) in modules.items():
            for kind, tensor in of_module(tensors, layer, outputs, parts).items():
                result[f"model.layers.{layer}.{module}.{kind}"] = tensor.contiguous()
    return result


def check_peft(folder, inputs, logits):
    import peft
    import peft.tuners.lora.torchao
    import transformers
    peft.tuners.lora.torchao.is_torchao_available = lambda: False  # it refuses torchtune's
    config = transformers.Phi3Config.from_pretrained(HERE / "phi3", partial_rotary_factor=1.0, sliding_window=None)
    config.rope_parameters = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0}
    base = transformers.Phi3ForCausalLM.from_pretrained(HERE / "phi3", config=config, dtype=torch.float32)
    beside = peft.PeftModel.from_pretrained(base, folder)
    with torch.no_grad():
        print("peft's logits are apart by", (beside(inputs).logits - logits).abs().max().item(), "of", logits.abs().max().item())
        merged = beside.merge_and_unload()(inputs).logits
        print("merged, by", (merged - logits).abs().max().item())


def main():
    torch.manual_seed(0)
    model, rng = model_with_weights()
    tokens = torch.from_numpy(rng.integers(3, VOCABULARY, (STEPS, BATCH, TIME + 1)))
    folder = HERE / "phi3_lora_parts"
    folder.mkdir(exist_ok=True)
    first = as_in_files(get_adapter_params(model))
    save_file({"base_model.model." + name: tensor.detach() for name, tensor in first.items()}, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps(
        {"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": "phi3", "r": RANK, "lora_alpha": ALPHA, "lora_dropout": 0.0, "bias": "none",
         "target_modules": ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"], "rank_pattern": {"qkv_proj": 2 * RANK, "gate_up_proj": 2 * RANK},
         "alpha_pattern": {"qkv_proj": 2 * ALPHA, "gate_up_proj": 2 * ALPHA}}, indent=2) + "\n")
    (folder / "xtrain_parts.json").write_text(json.dumps({"gate_up_proj": ["gate_proj", "up_proj"], "qkv_proj": ["q_proj", "v_proj"]}, indent=2) + "\n")

    expected = {"inputs": tokens[:, :, :-1].contiguous().float(), "targets": tokens[:, :, 1:].contiguous().float()}
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    losses = []
    for step in range(STEPS):
        logits = model(tokens[step, :, :-1])
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), tokens[step, :, 1:].reshape(-1))
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            expected["logits"] = logits.detach().float().contiguous()
            gradients = as_in_files({name: p.grad for name, p in get_adapter_params(model).items()})
            expected |= {"grad." + name: tensor for name, tensor in gradients.items()}
            check_peft(folder, tokens[0, :, :-1], logits.detach())
        optimizer.step()
        optimizer.zero_grad()
    expected["losses"] = torch.tensor(losses, dtype=torch.float64)
    last = as_in_files(get_adapter_params(model))
    expected |= {"last." + name: tensor.detach() for name, tensor in last.items()}
    save_file(expected, folder / "expected.safetensors")
    print(losses)
    import peft
    import torchao
    import torchtune
    import transformers
    (HERE / "VERSIONS_torchtune_phi3").write_text("".join(f"{m.__name__} {m.__version__}\n" for m in (torch, torchtune, torchao, transformers, peft, np)))


if __name__ == "__main__":
    main()
