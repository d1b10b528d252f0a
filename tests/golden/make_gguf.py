"""Small GGUF files, written with llama.cpp's package gguf as its converter writes them, and what they hold.

    python make_gguf.py        writes gguf/

Each family's folder has config.json and model.safetensors by transformers, model.gguf with the same weights, and logits.safetensors: tokens and
transformers' logits. types.gguf has a tensor of each type, and beside it the numbers that gguf.dequantize makes of it (NAME.expected).
"""

import json
import math
import pathlib
import shutil

import gguf
import numpy as np
import torch
import transformers
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from safetensors.torch import load_file, save_file

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE / "gguf"
SIZES = dict(vocab_size=11, hidden_size=8, intermediate_size=12, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
             max_position_embeddings=16, bos_token_id=1, eos_token_id=2, pad_token_id=None)


def writer(path, architecture, **more):
    return gguf.GGUFWriter(path, architecture, **more)


def close(out):
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def paired(rows, heads):
    """Rows of each head in the order of these files: rows that rotate together are adjacent."""
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


LLAMA = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
LLAMA_BLOCK = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
               "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
               "self_attn.qkv_proj": "attn_qkv", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
               "mlp.down_proj": "ffn_down", "mlp.gate_up_proj": "ffn_up", "block_sparse_moe.gate": "ffn_gate_inp", "mlp.gate": "ffn_gate_inp"}
GEMMA2_BLOCK = dict(LLAMA_BLOCK, **{"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
                                    "post_feedforward_layernorm": "post_ffw_norm"})
GPT2 = {"transformer.wte": "token_embd", "transformer.wpe": "position_embd", "transformer.ln_f": "output_norm", "lm_head": "output"}
GPT2_BLOCK = {"ln_1": "attn_norm", "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "ln_2": "ffn_norm", "mlp.c_fc": "ffn_up",
              "mlp.c_proj": "ffn_down"}
BLOOM = {"transformer.word_embeddings": "token_embd", "transformer.word_embeddings_layernorm": "token_embd_norm",
         "transformer.ln_f": "output_norm", "lm_head": "output"}
BLOOM_BLOCK = {"input_layernorm": "attn_norm", "self_attention.query_key_value": "attn_qkv", "self_attention.dense": "attn_output",
               "post_attention_layernorm": "ffn_norm", "mlp.dense_h_to_4h": "ffn_up", "mlp.dense_4h_to_h": "ffn_down"}
CHATGLM = {"transformer.embedding.word_embeddings": "token_embd", "transformer.encoder.final_layernorm": "output_norm",
           "transformer.output_layer": "output"}


def their_name(name, whole, block, blocks):
    stem, kind = name.rsplit(".", 1)
    if stem in whole:
        return whole[stem] + "." + kind, None
    layer, rest = stem.removeprefix(blocks).split(".", 1)
    return f"blk.{layer}.{block[rest]}.{kind}", rest


def add_tensors(out, architecture, tensors, config, whole=LLAMA, block=LLAMA_BLOCK, blocks="model.layers."):
    heads = config["num_attention_heads"] if "num_attention_heads" in config else config["n_head"]
    kv_heads = config.get("num_key_value_heads", heads)
    experts = {}
    for name, tensor in tensors.items():
        values = tensor.float().numpy()
        if ".experts." in name:
            before, rest = name.split("block_sparse_moe.experts.")
            expert, matrix, _ = rest.split(".")
            layer = before.removeprefix(blocks).split(".")[0]
            merged = dict(w1="ffn_gate_exps", w2="ffn_down_exps", w3="ffn_up_exps")[matrix]
            experts.setdefault(f"blk.{layer}.{merged}.weight", {})[int(expert)] = values
            continue
        theirs, rest = their_name(name, whole, block, blocks)
        if architecture == "llama" and rest in ("self_attn.q_proj", "self_attn.k_proj"):
            values = paired(values, heads if rest == "self_attn.q_proj" else kv_heads)
        if architecture.startswith("gemma") and name.endswith("norm.weight"):
            values = values + np.float32(1)
        if architecture == "gpt2" and theirs.startswith("blk.") and values.ndim == 2:
            values = values.T
        if architecture == "bloom" and rest == "self_attention.query_key_value":
            parts = values.reshape(heads, 3, -1, *values.shape[1:])
            values = np.concatenate([parts[:, i].reshape(-1, *values.shape[1:]) for i in range(3)])
        out.add_tensor(theirs, np.ascontiguousarray(values))
    for theirs, matrices in experts.items():
        out.add_tensor(theirs, np.stack([matrices[i] for i in range(len(matrices))]))


def add_llama_settings(out, config, rope_dim=None):
    out.add_block_count(config["num_hidden_layers"])
    out.add_context_length(config["max_position_embeddings"])
    out.add_embedding_length(config["hidden_size"])
    out.add_feed_forward_length(config["intermediate_size"])
    out.add_head_count(config["num_attention_heads"])
    out.add_head_count_kv(config["num_key_value_heads"])
    out.add_layer_norm_rms_eps(config["rms_norm_eps"])
    rope = config["rope_parameters"]
    out.add_rope_freq_base(rope["rope_theta"])
    if rope_dim:
        out.add_rope_dimension_count(rope_dim)
    if config.get("head_dim"):
        out.add_key_length(config["head_dim"])
        out.add_value_length(config["head_dim"])
    if rope["rope_type"] == "linear":
        out.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        out.add_rope_scaling_factor(rope["factor"])


def llama3_factors(dim, rope):
    low, high, original = rope["low_freq_factor"], rope["high_freq_factor"], rope["original_max_position_embeddings"]
    factors = []
    for frequency in 1.0 / rope["rope_theta"] ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim):
        wavelength = 2 * math.pi / frequency
        smooth = (original / wavelength - low) / (high - low)
        factors.append(1.0 if wavelength < original / high else rope["factor"] if wavelength > original / low
                       else 1 / ((1 - smooth) / rope["factor"] + smooth))
    return np.array(factors, dtype=np.float32)


def add_special_tokens(out, config):
    for key, add in (("bos_token_id", out.add_bos_token_id), ("eos_token_id", out.add_eos_token_id), ("pad_token_id", out.add_pad_token_id)):
        if config.get(key) is not None:
            add(config[key])


def make_model(name, model_class, config, seed):
    """A folder by transformers, with weights unlike initial ones, and its logits."""
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    model = model_class(config).eval()
    rng = np.random.Generator(np.random.PCG64(seed))
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            values = torch.from_numpy(rng.standard_normal(tuple(parameter.shape)).astype(np.float32)) * (0.4 if parameter.dim() > 1 else 0.1)
            is_norm = parameter.dim() == 1 and parameter_name.endswith("weight") and not name.startswith("gemma")
            parameter.copy_(values + 1.0 if is_norm else values)
        if name.startswith("gemma"):  # 1 + weight must be a number of fp32
            for parameter_name, parameter in model.named_parameters():
                if parameter.dim() == 1:
                    parameter.copy_((parameter * 1024).round() / 1024)
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    tokens = torch.from_numpy(rng.integers(0, config.vocab_size, (1, 9)).astype(np.int64))
    save_file({"tokens": tokens.int(), "logits": model(input_ids=tokens).logits.detach()}, folder / "logits.safetensors")
    return folder, json.loads((folder / "config.json").read_text()), load_file(folder / "model.safetensors")


def make_llamas():
    rope = dict(rope_type="llama3", rope_theta=1e4, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)
    folder, config, tensors = make_model("llama", transformers.LlamaForCausalLM, transformers.LlamaConfig(
        **SIZES, head_dim=16, rms_norm_eps=1e-5, tie_word_embeddings=True, rope_parameters=rope), 1)
    for path, more in ((folder / "model.gguf", {}), (OUT / "shards" / "model.gguf", dict(split_max_tensors=8))):
        path.parent.mkdir(exist_ok=True)
        out = writer(path, "llama", **more)
        add_llama_settings(out, config, 16)
        add_special_tokens(out, config)
        add_tensors(out, "llama", tensors, config)
        out.add_tensor("rope_freqs.weight", llama3_factors(16, config["rope_parameters"]))
        close(out)

    folder, config, tensors = make_model("llama_biased", transformers.LlamaForCausalLM, transformers.LlamaConfig(
        **dict(SIZES, eos_token_id=3, pad_token_id=0), rms_norm_eps=1e-6, tie_word_embeddings=False, attention_bias=True, mlp_bias=True,
        rope_parameters=dict(rope_type="linear", factor=2.0, rope_theta=500.0)), 2)
    out = writer(folder / "model.gguf", "llama")
    add_llama_settings(out, config, 4)
    add_special_tokens(out, config)
    add_tensors(out, "llama", tensors, config)
    close(out)


def make_mixtral():
    folder, config, tensors = make_model("mixtral", transformers.MixtralForCausalLM, transformers.MixtralConfig(
        **SIZES, num_local_experts=3, num_experts_per_tok=2, sliding_window=None, rms_norm_eps=1e-5, tie_word_embeddings=False), 3)
    out = writer(folder / "model.gguf", "llama")
    add_llama_settings(out, config, 4)
    out.add_expert_count(3)
    out.add_expert_used_count(2)
    add_special_tokens(out, config)
    add_tensors(out, "llama", tensors, config)
    close(out)


def make_qwens():
    for name, model, config, seed in (("qwen2", transformers.Qwen2ForCausalLM, transformers.Qwen2Config(
            **SIZES, rms_norm_eps=1e-6, tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=1e6)), 4),
            ("qwen3", transformers.Qwen3ForCausalLM, transformers.Qwen3Config(
                **SIZES, head_dim=6, rms_norm_eps=1e-6, tie_word_embeddings=False, rope_parameters=dict(rope_type="default", rope_theta=1e6)), 5)):
        folder, config, tensors = make_model(name, model, config, seed)
        out = writer(folder / "model.gguf", name)
        add_llama_settings(out, config)
        add_special_tokens(out, config)
        add_tensors(out, name, tensors, config)
        close(out)


def make_gemmas():
    sizes = dict(SIZES, bos_token_id=2, eos_token_id=1, pad_token_id=0, head_dim=6, rms_norm_eps=1e-6)
    folder, config, tensors = make_model("gemma", transformers.GemmaForCausalLM, transformers.GemmaConfig(**sizes), 6)
    out = writer(folder / "model.gguf", "gemma")
    add_llama_settings(out, config)
    add_special_tokens(out, config)
    add_tensors(out, "gemma", tensors, config)
    close(out)
    folder, config, tensors = make_model("gemma2", transformers.Gemma2ForCausalLM, transformers.Gemma2Config(
        **sizes, sliding_window=4, query_pre_attn_scalar=6, attn_logit_softcapping=1.5, final_logit_softcapping=2.5), 7)
    out = writer(folder / "model.gguf", "gemma2")
    add_llama_settings(out, config)
    out.add_attn_logit_softcapping(1.5)
    out.add_final_logit_softcapping(2.5)
    out.add_sliding_window(4)
    add_special_tokens(out, config)
    add_tensors(out, "gemma2", tensors, config, block=GEMMA2_BLOCK)
    close(out)


def make_phi3():
    folder, config, tensors = make_model("phi3", transformers.Phi3ForCausalLM, transformers.Phi3Config(
        **dict(SIZES, hidden_size=16, pad_token_id=0), original_max_position_embeddings=16, rms_norm_eps=1e-5, sliding_window=5, tie_word_embeddings=False,
        resid_pdrop=0.0, rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.75)), 8)
    out = writer(folder / "model.gguf", "phi3")
    add_llama_settings(out, config, int(0.75 * 16) // 2)
    out.add_rope_scaling_orig_ctx_len(16)
    out.add_sliding_window(5)
    add_special_tokens(out, config)
    add_tensors(out, "phi3", tensors, config)
    close(out)


def make_gpt2():
    folder, config, tensors = make_model("gpt2", transformers.GPT2LMHeadModel, transformers.GPT2Config(
        vocab_size=11, n_positions=16, n_embd=8, n_layer=2, n_head=2, n_inner=12, embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0,
        bos_token_id=1, eos_token_id=2), 9)
    out = writer(folder / "model.gguf", "gpt2")
    out.add_block_count(2)
    out.add_context_length(16)
    out.add_embedding_length(8)
    out.add_feed_forward_length(12)
    out.add_head_count(2)
    out.add_layer_norm_eps(config["layer_norm_epsilon"])
    add_special_tokens(out, config)
    add_tensors(out, "gpt2", tensors, config, GPT2, GPT2_BLOCK, "transformer.h.")
    out.add_tensor("output.weight", tensors["transformer.wte.weight"].numpy())  # as converters of 2023 did
    close(out)


def make_bloom():
    folder, config, tensors = make_model("bloom", transformers.BloomForCausalLM, transformers.BloomConfig(
        vocab_size=11, hidden_size=12, n_layer=2, n_head=3, seq_length=16, bos_token_id=1, eos_token_id=2, pad_token_id=3), 10)
    out = writer(folder / "model.gguf", "bloom")
    out.add_context_length(16)
    out.add_embedding_length(12)
    out.add_feed_forward_length(48)
    out.add_block_count(2)
    out.add_head_count(3)
    out.add_head_count_kv(3)
    out.add_layer_norm_eps(config["layer_norm_epsilon"])
    add_special_tokens(out, config)
    add_tensors(out, "bloom", tensors, config, BLOOM, BLOOM_BLOCK, "transformer.h.")
    close(out)


def make_chatglm():
    """transformers has no class: names and settings are those of the fixture chatglm3."""
    config = json.loads((HERE / "chatglm3" / "config.json").read_text())
    config.update(padded_vocab_size=11, hidden_size=8, num_layers=2, num_attention_heads=2, multi_query_group_num=1, kv_channels=4,
                  ffn_hidden_size=12, seq_length=16)
    config.pop("vocab_size", None)
    rng = np.random.Generator(np.random.PCG64(11))
    shapes = {"transformer.embedding.word_embeddings.weight": (11, 8), "transformer.output_layer.weight": (11, 8),
              "transformer.encoder.final_layernorm.weight": (8,)}
    for layer in range(2):
        for name, shape in {"input_layernorm.weight": (8,), "self_attention.query_key_value.weight": (16, 8),
                            "self_attention.query_key_value.bias": (16,), "self_attention.dense.weight": (8, 8),
                            "post_attention_layernorm.weight": (8,), "mlp.dense_h_to_4h.weight": (24, 8), "mlp.dense_4h_to_h.weight": (8, 12)}.items():
            shapes[f"transformer.encoder.layers.{layer}.{name}"] = shape
    tensors = {name: torch.from_numpy(rng.standard_normal(shape).astype(np.float32)) for name, shape in shapes.items()}
    folder = OUT / "chatglm"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    out = writer(folder / "model.gguf", "chatglm")
    out.add_context_length(16)
    out.add_embedding_length(8)
    out.add_feed_forward_length(12)
    out.add_block_count(2)
    out.add_head_count(2)
    out.add_head_count_kv(1)
    out.add_layer_norm_rms_eps(config["layernorm_epsilon"])
    out.add_rope_dimension_count(2)
    out.add_rope_freq_base(10000.0 * config.get("rope_ratio", 1))
    out.add_eos_token_id(config["eos_token_id"])
    out.add_pad_token_id(config["pad_token_id"])
    add_tensors(out, "chatglm", tensors, dict(num_attention_heads=2), CHATGLM, BLOOM_BLOCK, "transformer.encoder.layers.")
    close(out)


def split_heads(name, values, heads, kv_heads):
    """attn_q, attn_k and attn_v of a fused matrix."""
    d = values.shape[0] // (heads + 2 * kv_heads)
    if name == "baichuan":
        q, k, v = np.split(values, [heads * d, (heads + kv_heads) * d])
    else:
        groups = values.reshape(kv_heads, heads // kv_heads + 2, d, -1)
        q, k, v = (part.reshape(-1, values.shape[1]) for part in (groups[:, :-2], groups[:, -2], groups[:, -1]))
    return {"attn_q": paired(q, heads), "attn_k": paired(k, kv_heads), "attn_v": v}


INTERNLM2 = {"model.tok_embeddings": "token_embd", "model.norm": "output_norm", "output": "output"}
INTERNLM2_BLOCK = {"attention_norm": "attn_norm", "attention.wo": "attn_output", "ffn_norm": "ffn_norm", "feed_forward.w1": "ffn_gate",
                   "feed_forward.w3": "ffn_up", "feed_forward.w2": "ffn_down"}


def make_fused(name, folder_name, config, more=None):
    """Baichuan and InternLM2: transformers has no class; config.json is that of the families' fixtures."""
    rng = np.random.Generator(np.random.PCG64(13))
    c, f, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads", heads)
    rows = c // heads * (heads + 2 * kv_heads)
    is_baichuan = name == "baichuan"
    whole = LLAMA if is_baichuan else INTERNLM2
    block = {k: v for k, v in LLAMA_BLOCK.items() if k.split(".")[-1] not in ("q_proj", "k_proj", "v_proj")} if is_baichuan else INTERNLM2_BLOCK
    fused = "self_attn.W_pack" if is_baichuan else "attention.wqkv"
    sizes = {"attn_norm": (c,), "ffn_norm": (c,), "attn_output": (c, c), "ffn_gate": (f, c), "ffn_up": (f, c), "ffn_down": (c, f)}
    shapes = {ours + ".weight": (c,) if theirs == "output_norm" else (config["vocab_size"], c) for ours, theirs in whole.items()}
    for layer in range(config["num_hidden_layers"]):
        shapes[f"model.layers.{layer}.{fused}.weight"] = (rows, c)
        for ours, theirs in block.items():
            if theirs in sizes and (ours.startswith(("mlp", "self_attn")) or "norm" in ours or not is_baichuan) and "gate_up" not in ours and ours != "mlp.gate":
                shapes[f"model.layers.{layer}.{ours}.weight"] = sizes[theirs]
    tensors = {key: torch.from_numpy((rng.standard_normal(shape) * 0.3 + (1.0 if len(shape) == 1 else 0.0)).astype(np.float32))
               for key, shape in shapes.items()}
    halves = "" if is_baichuan else f"model.layers.0.{fused}.weight"  # has keys in F16, beside F32
    if halves:
        tensors[halves] = tensors[halves].half().float()
    folder = OUT / folder_name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    out = writer(folder / "model.gguf", name)
    add_llama_settings(out, dict(config, num_key_value_heads=kv_heads, max_position_embeddings=16,
                                 rope_parameters=dict(rope_type="default", rope_theta=config.get("rope_theta", 1e4))), c // heads)
    out.add_tensor_data_layout("Meta AI original pth")
    if more:
        more(out)
    add_special_tokens(out, config)
    for key, values in tensors.items():
        values = values.numpy()
        if fused in key:
            for part, matrix in split_heads(name, values, heads, kv_heads).items():
                kind = np.float16 if part == "attn_k" and key == halves else np.float32
                out.add_tensor(f"blk.{key.split('.')[2]}.{part}.weight", np.ascontiguousarray(matrix).astype(kind))
        else:
            out.add_tensor(their_name(key, whole, block, "model.layers.")[0], values)
    close(out)


def make_fuseds():
    sizes = dict(vocab_size=11, hidden_size=8, intermediate_size=12, num_attention_heads=2, rms_norm_eps=1e-6, bos_token_id=1, eos_token_id=2, pad_token_id=0,
                 tie_word_embeddings=False)
    make_fused("baichuan", "baichuan", dict(sizes, model_type="baichuan", num_hidden_layers=32, max_position_embeddings=16, model_max_length=16))
    make_fused("baichuan", "baichuan_alibi", dict(sizes, model_type="baichuan", num_hidden_layers=2, model_max_length=16),
               lambda out: out.add_max_alibi_bias(8.0))
    make_fused("internlm2", "internlm2", dict(sizes, model_type="internlm2", num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                                              max_position_embeddings=16, rope_theta=1e6, bias=False))


# Of each type of blocks: where its fp16 numbers are.
HALVES = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2],
          "Q6_K": [208], "IQ4_NL": [0], "MXFP4": []}


def make_types():
    rng = np.random.Generator(np.random.PCG64(12))
    out = writer(OUT / "types.gguf", "none")
    out.add_array("of.strings", ["", "a", "\u00e9"])
    out.add_array("of.floats", [0.5, -2.0])
    out.add_array("of.integers", [3, -4])
    out.add_array("of.flags", [True, False])
    out.add_uint8("one.u8", 200)
    out.add_int8("one.i8", -100)
    out.add_uint16("one.u16", 60000)
    out.add_int16("one.i16", -30000)
    out.add_uint32("one.u32", 4000000000)
    out.add_int32("one.i32", -2000000000)
    out.add_uint64("one.u64", 1 << 40)
    out.add_int64("one.i64", -(1 << 40))
    out.add_float32("one.f32", 0.1)
    out.add_float64("one.f64", 0.1)
    out.add_bool("one.flag", True)
    out.add_string("one.text", "text")
    for name, halves in HALVES.items():
        kind = GGMLQuantizationType[name]
        numbers, size = GGML_QUANT_SIZES[kind]
        rows, blocks = (2, 1) if numbers == 256 else (4, 2)
        data = rng.integers(0, 256, (rows, blocks * size), dtype=np.uint8)
        for block in range(blocks):
            for at in halves:
                data[:, block * size + at:block * size + at + 2] = rng.normal(0, 0.1, (rows, 1)).astype(np.float16).view(np.uint8)
        if name == "MXFP4":
            data[:, ::size] = rng.integers(110, 135, (rows, blocks))
            data[0, 0] = 0  # the two smallest exponents are of subnormal numbers
            data[1, 0] = 1
        out.add_tensor(name, data, raw_dtype=kind)
        out.add_tensor(name + ".expected", gguf.dequantize(data, kind))
    for kind in (GGMLQuantizationType.F16, GGMLQuantizationType.BF16):
        values = rng.standard_normal((4, 3)).astype(np.float32)
        data = gguf.quantize(values, kind)
        out.add_tensor(kind.name, data, raw_dtype=kind)
        out.add_tensor(kind.name + ".expected", gguf.dequantize(data, kind).reshape(4, 3))
    out.add_tensor("F64", values.astype(np.float64))
    out.add_tensor("F64.expected", values)
    unknown = GGMLQuantizationType.IQ4_XS  # of the format; not read
    out.add_tensor("IQ4_XS", rng.integers(0, 256, (1, GGML_QUANT_SIZES[unknown][1]), dtype=np.uint8), raw_dtype=unknown)
    close(out)


def make_quantized():
    """Blocks of numbers, and what gguf.quantize makes of them: random of many sizes, zero, subnormal, halves between two values, near fp16's largest scale."""
    rng = np.random.Generator(np.random.PCG64(13))
    blocks = [rng.standard_normal(32) * scale for scale in 10.0 ** np.arange(-42.0, 6.0)]
    blocks += [np.zeros(32), -np.zeros(32), np.full(32, 1.0), np.full(32, -1.0), np.full(32, 1e-38), np.full(32, -1e-45)]
    blocks += [np.where(np.arange(32) == at, sign * 127.0, np.arange(32) - 15.5) for at in (0, 31) for sign in (1, -1)]  # halves of Q8_0
    blocks += [np.where(np.arange(32) == 5, sign * 8.0, np.arange(32) / 2 - 7.5) for sign in (1, -1)]  # halves of Q4_0
    blocks += [np.where(np.arange(32) % 2 == 0, 3.0, -3.0), np.linspace(-65504.0 * 8, 65504.0 * 7, 32), np.linspace(-65504.0, 65504.0, 32)]
    numbers = np.array(blocks + [np.zeros(32)] * (len(blocks) % 2)).astype(np.float32).reshape(-1, 64)
    out = writer(OUT / "quantized.gguf", "none")
    out.add_tensor("F32", numbers)
    for kind in (GGMLQuantizationType.Q8_0, GGMLQuantizationType.Q4_0, GGMLQuantizationType.BF16, GGMLQuantizationType.F16):
        out.add_tensor(kind.name, gguf.quantize(np.clip(numbers, -65504.0, 65504.0) if kind.name == "F16" else numbers, kind), raw_dtype=kind)
    close(out)


if __name__ == "__main__":
    torch.manual_seed(0)
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()
    make_types()
    make_quantized()
    make_llamas()
    make_mixtral()
    make_qwens()
    make_gemmas()
    make_phi3()
    make_gpt2()
    make_bloom()
    make_chatglm()
    make_fuseds()
    versions = "".join(f"{module.__name__} {module.__version__}\n" for module in (torch, transformers, np)) + "gguf 0.19.0\n"
    (HERE / "VERSIONS_gguf").write_text(versions)
