"""Compares the formulas of the published families with what others computed. For people; no test runs it.

    XTRAIN_TEST_DATA=FOLDER python check_published.py

Without a folder it compares with transformers only, whose LLaMA and GLM classes compute the same functions when weights are laid
out for them: packed matrices cut, ALiBi given as a mask while all positions are 0, normalized heads normalized beforehand. With
it, also with hidden states that the reference models of InternLM and ChatGLM2 gave.
"""

import json
import os
import pathlib

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file

from chatglm2 import chatglm2
from fixture import HERE
from internlm import internlm

# Sums of at most 64 products in another order, some 25 of them after another: 25 * 6e-8 * 8 = 1.2e-5 of the largest value.
TOLERANCE = 1.2e-5
RECORDED = 5e-4  # what the recorded hidden states promise


def report(what, ours, theirs, allowed=TOLERANCE):
    difference = ((ours - theirs).abs().max() / theirs.abs().max()).item()
    print(f"{what}: {difference:.1e} of the largest value")
    assert difference < allowed, what


def fixture_of(name):
    folder = HERE / name
    expected = load_file(folder / "expected.safetensors")
    return json.loads((folder / "config.json").read_text()), load_file(folder / "model.safetensors"), expected


def logits_of(model_class, config, weights, inputs, **more):
    model = model_class(model_class.config_class(attn_implementation="eager", **config))
    missing = model.load_state_dict(weights, strict=True)
    assert not missing.missing_keys and not missing.unexpected_keys
    with torch.no_grad():
        return model(input_ids=inputs, **more).logits


def llama_config(config, **more):
    keys = ["vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "rms_norm_eps"]
    return {key: config[key] for key in keys} | dict(tie_word_embeddings=False, max_position_embeddings=512) | more


def unpacked(weights):
    out = {}
    for name, w in weights.items():
        if "W_pack" in name:
            out |= {name.replace("W_pack", f"{part}_proj"): rows for part, rows in zip("qkv", w.chunk(3))}
        else:
            out[name] = w
    return out


def check_baichuan():
    config, weights, expected = fixture_of("baichuan_rotary")
    for t in (7, 33):
        theirs = logits_of(transformers.LlamaForCausalLM, llama_config(config), unpacked(weights), expected[f"t{t}.inputs"].long())
        report(f"baichuan_rotary in LLaMA, {t} places", expected[f"t{t}.logits"], theirs)

    config, weights, expected = fixture_of("baichuan2")
    weights["lm_head.weight"] = F.normalize(weights["lm_head.weight"])
    theirs = logits_of(transformers.LlamaForCausalLM, llama_config(config), unpacked(weights), expected["t33.inputs"].long())
    report("baichuan2 in LLaMA", expected["t33.logits"], theirs)

    config, weights, expected = fixture_of("baichuan_alibi")
    inputs, heads = expected["t33.inputs"].long(), config["num_attention_heads"]
    slopes = transformers.models.bloom.modeling_bloom.build_alibi_tensor(torch.ones(1, 33), heads, torch.float32)
    hidden = torch.full((33, 33), torch.finfo(torch.float32).min).triu(1)
    mask = (slopes.reshape(1, heads, 1, 33) + hidden).expand(2, -1, -1, -1)
    theirs = logits_of(transformers.LlamaForCausalLM, llama_config(config), unpacked(weights), inputs, attention_mask=mask,
                       position_ids=torch.zeros(2, 33, dtype=torch.long))
    report("baichuan_alibi in LLaMA with BLOOM's ALiBi", expected["t33.logits"], theirs)


def check_internlm():
    config, weights, expected = fixture_of("internlm")
    theirs = logits_of(transformers.LlamaForCausalLM, llama_config(config, attention_bias=True), weights, expected["t33.inputs"].long())
    report("internlm in LLaMA", expected["t33.logits"], theirs)

    config, weights, expected = fixture_of("internlm2")
    groups, d = config["num_key_value_heads"], config["hidden_size"] // config["num_attention_heads"]
    names = {"model.tok_embeddings": "model.embed_tokens", "output": "lm_head", "attention_norm": "input_layernorm",
             "ffn_norm": "post_attention_layernorm", "attention.wo": "self_attn.o_proj", "feed_forward.w1": "mlp.gate_proj",
             "feed_forward.w3": "mlp.up_proj", "feed_forward.w2": "mlp.down_proj"}
    llama = {}
    for name, w in weights.items():
        if "wqkv" in name:
            per_group = w.shape[0] // groups // d
            rows = [w[i * d:(i + 1) * d] for i in range(groups * per_group)]
            parts = dict(q=[r for i, r in enumerate(rows) if i % per_group < per_group - 2],
                         k=rows[per_group - 2::per_group], v=rows[per_group - 1::per_group])
            llama |= {name.replace("attention.wqkv", f"self_attn.{part}_proj"): torch.cat(of) for part, of in parts.items()}
        else:
            for ours, theirs in names.items():
                name = name.replace(ours + ".", theirs + ".")
            llama[name] = w
    theirs = logits_of(transformers.LlamaForCausalLM, llama_config(
        config, num_key_value_heads=groups, rope_parameters=dict(rope_type="default", rope_theta=config["rope_theta"])),
        llama, expected["t33.inputs"].long())
    report("internlm2 in LLaMA", expected["t33.logits"], theirs)


def check_chatglm():
    names = {"transformer.embedding.word_embeddings": "model.embed_tokens", "transformer.encoder.final_layernorm": "model.norm",
             "transformer.output_layer": "lm_head", "transformer.encoder": "model", "self_attention.dense": "self_attn.o_proj",
             "mlp.dense_h_to_4h": "mlp.gate_up_proj", "mlp.dense_4h_to_h": "mlp.down_proj"}
    for fixture_name in ("chatglm2", "chatglm3"):
        config, weights, expected = fixture_of(fixture_name)
        heads, groups, d = config["num_attention_heads"], config["multi_query_group_num"], config["kv_channels"]
        glm = {}
        for name, w in weights.items():
            if "query_key_value" in name:
                name = name.replace("transformer.encoder", "model")
                parts = zip("qkv", w.split([heads * d, groups * d, groups * d]))
                glm |= {name.replace("self_attention.query_key_value", f"self_attn.{part}_proj"): rows for part, rows in parts}
            else:
                for ours, theirs in names.items():
                    name = name.replace(ours + ".", theirs + ".")
                glm[name] = w
        theirs = logits_of(transformers.GlmForCausalLM, dict(
            vocab_size=config["padded_vocab_size"], hidden_size=config["hidden_size"], intermediate_size=config["ffn_hidden_size"],
            num_hidden_layers=config["num_layers"], num_attention_heads=heads, num_key_value_heads=groups, head_dim=d,
            rms_norm_eps=config["layernorm_epsilon"], attention_bias=True, tie_word_embeddings=False, max_position_embeddings=512,
            pad_token_id=0, rope_parameters=dict(rope_type="default", rope_theta=1e4 * config.get("rope_ratio", 1),
                                                 partial_rotary_factor=0.5)),
            glm, expected["t33.inputs"].long())
        report(f"{fixture_name} in GLM", expected["t33.logits"], theirs)


def check_recorded(data):
    for name, model_class in (("internlm", internlm), ("chatglm2", chatglm2)):
        folder = pathlib.Path(data) / "models/chatglm_cpp/hf_derived" / name
        config = json.loads((folder / "config.json").read_text())
        recorded = json.loads((folder / "expected.json").read_text())
        model = model_class(config, with_head=False)
        weights = load_file(folder / "model.safetensors")
        assert set(weights) == {n for n, _ in model.named_parameters()}
        with torch.no_grad():
            for n, p in model.named_parameters():
                p.copy_(weights[n])
            hidden = model.hidden(torch.tensor([recorded["input_ids"]]))[0]
        report(f"{name}, recorded hidden states", hidden, torch.tensor(recorded["hidden"]), RECORDED)


def main():
    check_baichuan()
    check_internlm()
    check_chatglm()
    if "XTRAIN_TEST_DATA" in os.environ:
        check_recorded(os.environ["XTRAIN_TEST_DATA"])
    else:
        print("skipped the recorded hidden states: XTRAIN_TEST_DATA is not set")


if __name__ == "__main__":
    main()
