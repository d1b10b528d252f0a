"""Fixtures of families that transformers has no class for. Their formulas are written out beside this file, one module each, and
check_published.py compares them with what others computed."""

import numpy as np
import torch
import transformers
from safetensors.torch import save_file

import fixture
from baichuan import baichuan, full_rows, with_z_loss
from chatglm1 import chatglm1, rows_with_context
from chatglm2 import chatglm2, chatglm2_behind_prefix
from formulas import results
from internlm import internlm, internlm2

LLAMA_KEYS = dict(bos_token_id=1, eos_token_id=2, pad_token_id=0, hidden_act="silu", initializer_range=0.02, torch_dtype="float32",
                  use_cache=True, tie_word_embeddings=False)


def automatic(module, prefix):
    """What tells transformers which published code to run; xtrain has its own."""
    return dict(auto_map={"AutoConfig": f"configuration_{module}.{prefix}Config",
                          "AutoModelForCausalLM": f"modeling_{module}.{prefix}ForCausalLM"})


def make(name, model, seed, **more):
    vocabulary = model.config.get("vocab_size") or model.config["padded_vocab_size"]
    fixture.make(name, model, seed, vocabulary=vocabulary, **({"compute": results} | more))


def make_baichuan():
    shared = dict(LLAMA_KEYS, architectures=["BaichuanForCausalLM"], model_type="baichuan", rms_norm_eps=1e-6,
                  tokenizer_class="BaichuanTokenizer", **automatic("baichuan", "Baichuan"))
    make("baichuan_rotary", baichuan(dict(shared, vocab_size=59, hidden_size=24, intermediate_size=40, num_hidden_layers=2,
                                          num_attention_heads=3, max_position_embeddings=40)), 15)
    make("baichuan_alibi", baichuan(dict(shared, vocab_size=59, hidden_size=24, intermediate_size=40, num_hidden_layers=2,
                                         num_attention_heads=3, model_max_length=40, gradient_checkpointing=False), alibi=True), 16)
    make("baichuan2", baichuan(dict(shared, vocab_size=61, hidden_size=24, intermediate_size=40, num_hidden_layers=2,
                                    num_attention_heads=2, max_position_embeddings=40, model_max_length=40, z_loss_weight=0.01),
                               norm_head=True), 17, draw=full_rows, compute=with_z_loss)


def make_internlm():
    make("internlm", internlm(dict(
        LLAMA_KEYS, architectures=["InternLMForCausalLM"], model_type="internlm", bias=True, vocab_size=53, hidden_size=24,
        intermediate_size=40, num_hidden_layers=2, num_attention_heads=3, max_position_embeddings=40, rms_norm_eps=1e-6,
        **automatic("internlm", "InternLM"))), 18)
    make("internlm2", internlm2(dict(
        LLAMA_KEYS, architectures=["InternLM2ForCausalLM"], model_type="internlm2", attn_implementation="eager", bias=False,
        vocab_size=59, hidden_size=32, intermediate_size=36, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=40, rms_norm_eps=1e-5, rope_theta=1e6, rope_scaling=None,
        **automatic("internlm2", "InternLM2"))), 19)


def make_aquila():
    """LLaMA under another name, so LLaMA's class computes it."""
    config = dict(LLAMA_KEYS, vocab_size=53, hidden_size=24, intermediate_size=36, num_hidden_layers=2, num_attention_heads=2,
                  max_position_embeddings=40, rms_norm_eps=1e-6)
    arguments = {key: value for key, value in config.items() if key != "torch_dtype"}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(attn_implementation="eager", **arguments))
    fixture.make("aquila", model, 20, config=dict(config, architectures=["AquilaForCausalLM"], model_type="aquila",
                                                  **automatic("aquila", "Aquila")))


def make_chatglm():
    shared = dict(
        model_type="chatglm", architectures=["ChatGLMModel"], torch_dtype="float32", use_cache=True, tie_word_embeddings=False,
        auto_map={"AutoConfig": "configuration_chatglm.ChatGLMConfig",
                  "AutoModel": "modeling_chatglm.ChatGLMForConditionalGeneration",
                  "AutoModelForSeq2SeqLM": "modeling_chatglm.ChatGLMForConditionalGeneration"})
    of_2_and_3 = dict(
        shared, add_bias_linear=False, add_qkv_bias=True, apply_query_key_layer_scaling=True,
        apply_residual_connection_post_layernorm=False, attention_dropout=0.0, attention_softmax_in_fp32=True,
        bias_dropout_fusion=True, ffn_hidden_size=36, fp32_residual_connection=False, hidden_dropout=0.0, hidden_size=32,
        kv_channels=8, layernorm_epsilon=1e-5, multi_query_attention=True, multi_query_group_num=2, num_attention_heads=4,
        num_layers=2, original_rope=True, padded_vocab_size=59, post_layer_norm=True, rmsnorm=True, seq_length=40, eos_token_id=2,
        pad_token_id=0)
    make("chatglm2", chatglm2(of_2_and_3), 21)
    make("chatglm3", chatglm2(dict(of_2_and_3, rope_ratio=50)), 22)
    make_chatglm_prefix(of_2_and_3, 28)
    config = dict(shared, bos_token_id=59, eos_token_id=60, mask_token_id=57, gmask_token_id=58, pad_token_id=3, hidden_size=24,
                  inner_hidden_size=48, layernorm_epsilon=1e-5, max_sequence_length=40, num_attention_heads=3, num_layers=2,
                  position_encoding_2d=True, vocab_size=61)
    make("chatglm1", chatglm1(config), 23, draw=rows_with_context(config), lengths=[7, 33])


def make_chatglm_prefix(config, seed):
    """A prefix encoder for 5 virtual tokens for the chatglm2 fixture, as P-tuning saves it, and the logits after the prefix."""
    rng = np.random.default_rng(seed)
    all_keys_and_values = config["num_layers"] * 2 * config["multi_query_group_num"] * config["kv_channels"]
    inner = 12
    shapes = {"embedding.weight": (5, all_keys_and_values), "trans.0.weight": (inner, all_keys_and_values), "trans.0.bias": (inner,),
              "trans.2.weight": (all_keys_and_values, inner), "trans.2.bias": (all_keys_and_values,)}
    network = {n: torch.from_numpy(rng.standard_normal(s).astype(np.float32)) * 0.4 for n, s in shapes.items()}
    model = chatglm2_behind_prefix(config, network).load_pretrained(fixture.HERE / "chatglm2")
    folder = fixture.emptied("chatglm2_prefix")
    folder.mkdir()
    fixture.write_config(folder, dict(config, pre_seq_len=5, prefix_projection=True))
    save_file({f"transformer.prefix_encoder.{n}": p for n, p in network.items()}, folder / "model.safetensors")
    inputs = fixture.tokens(rng, (2, 9), config["padded_vocab_size"])
    with torch.no_grad():
        logits = model(inputs)
    save_file({"inputs": fixture.as_floats(inputs), "logits": fixture.as_floats(logits)}, folder / "expected.safetensors")


def make_all():
    make_baichuan()
    make_internlm()
    make_aquila()
    make_chatglm()
