"""Writes a LLaMA folder of fp32 weights as a GGUF file without a tokenizer, for llama.cpp.

    write_gguf.py FOLDER FILE.gguf [f32|f16|bf16]

Norms stay in fp32, as llama.cpp's own script leaves them. Needs the packages gguf and safetensors.
"""
import json
import pathlib
import sys

import gguf
import numpy as np
from safetensors.numpy import load_file

TYPES = {"f32": gguf.GGMLQuantizationType.F32, "f16": gguf.GGMLQuantizationType.F16, "bf16": gguf.GGMLQuantizationType.BF16}
NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
OUTSIDE = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}


def name_of(tensor):
    if tensor in OUTSIDE:
        return OUTSIDE[tensor]
    layer, module = tensor.removeprefix("model.layers.").removesuffix(".weight").split(".", 1)
    return f"blk.{layer}.{NAMES[module]}.weight"


def interleaved(w, heads):
    """Rows of a head in the order of llama.cpp's rotary embedding: the halves alternate."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def main():
    folder, file, kind = pathlib.Path(sys.argv[1]), sys.argv[2], (sys.argv[3:] or ["f32"])[0]
    config = json.loads((folder / "config.json").read_text())
    heads = config["num_attention_heads"]
    kv_heads, hidden = config.get("num_key_value_heads", heads), config["hidden_size"]
    rope = config.get("rope_parameters") or {"rope_theta": config.get("rope_theta", 10000.0)}
    if config["model_type"] != "llama" or rope.get("rope_type", "default") != "default" or config.get("rope_scaling"):
        sys.exit("write_gguf: must be a LLaMA without scaled rotary embeddings")
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_rope_dimension_count(config.get("head_dim") or hidden // heads)
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("no_vocab")
    for part in sorted(folder.glob("*.safetensors")):
        for tensor, w in load_file(part).items():
            if w.dtype != np.float32:
                sys.exit(f"write_gguf: weights must be in fp32; '{tensor}' is in {w.dtype}")
            if tensor.endswith("q_proj.weight"):
                w = interleaved(w, heads)
            if tensor.endswith("k_proj.weight"):
                w = interleaved(w, kv_heads)
            to = TYPES[kind] if w.ndim > 1 else TYPES["f32"]
            writer.add_tensor(name_of(tensor), gguf.quants.quantize(np.ascontiguousarray(w), to), raw_dtype=to)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
