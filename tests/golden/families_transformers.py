"""Fixtures of families that transformers computes with its own classes, eager attention, fp32, no dropout.

Where published folders have other keys than this version of transformers writes, config.json has theirs, and transformers
must read it and compute the same logits.
"""

import torch
import transformers

import fixture

NO_DROPOUT = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
LLAMA_KEYS = dict(bos_token_id=1, eos_token_id=2, hidden_act="silu", initializer_range=0.02, attention_dropout=0.0, use_cache=True,
                  torch_dtype="float32")


def eager(model_class, config):
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    return model_class(config)


def make_read_back(name, model_class, config, seed, **more):
    """The fixture of a model that transformers makes of a published folder's config.json; read again, it computes the same."""
    keys = {key: value for key, value in config.items() if key not in ("architectures", "model_type", "torch_dtype")}
    model = eager(model_class, model_class.config_class(**keys))
    folder = fixture.make(name, model, seed, config=config, **more)
    expected = fixture.load_file(folder / "expected.safetensors")
    again = transformers.AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.float32, attn_implementation="eager")
    logits = again(input_ids=expected["t33.inputs"].long()).logits
    difference = (logits - expected["t33.logits"]).abs().max().item()
    assert difference < 1e-5, (name, difference)


def make_gpt2_and_llama():
    fixture.make("gpt2", transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=61, n_positions=37, n_embd=24, n_layer=2, n_head=3, n_inner=40, embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0,
        bos_token_id=1, eos_token_id=2, pad_token_id=2)), 1)
    fixture.make("llama_grouped_untied", transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=67, max_position_embeddings=40, hidden_size=32, intermediate_size=44, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, rms_norm_eps=1e-5, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2)), 2)
    fixture.make("llama_tied", transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=53, max_position_embeddings=40, hidden_size=24, intermediate_size=36, num_hidden_layers=3, num_attention_heads=2,
        num_key_value_heads=2, rms_norm_eps=1e-6, rope_theta=500.0, tie_word_embeddings=True, bos_token_id=1, eos_token_id=[2, 3])), 3)
    fixture.make_adapter("gpt2_lora", "gpt2", ["c_attn", "c_fc"], 4, fan_in_fan_out=True)
    fixture.make_adapter("llama_lora", "llama_grouped_untied", ["v_proj", "q_proj", "down_proj"], 5)


def make_mistral():
    make_read_back("mistral", transformers.MistralForCausalLM, dict(
        LLAMA_KEYS, architectures=["MistralForCausalLM"], model_type="mistral", vocab_size=59, hidden_size=32, intermediate_size=36,
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=40, rms_norm_eps=1e-5,
        rope_theta=1e4, sliding_window=5, tie_word_embeddings=False, pad_token_id=2), 6)


def make_qwen2():
    make_read_back("qwen2", transformers.Qwen2ForCausalLM, dict(
        LLAMA_KEYS, architectures=["Qwen2ForCausalLM"], model_type="qwen2", vocab_size=61, hidden_size=24, intermediate_size=40,
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=40, max_window_layers=2,
        rms_norm_eps=1e-6, rope_theta=1e6, sliding_window=40, use_sliding_window=False, tie_word_embeddings=True, pad_token_id=2), 7)


def make_qwen3_gemma_phi3():
    # heads whose size is not hidden size / number of heads
    make_read_back("qwen3", transformers.Qwen3ForCausalLM, dict(
        LLAMA_KEYS, architectures=["Qwen3ForCausalLM"], model_type="qwen3", vocab_size=61, hidden_size=24, intermediate_size=40, head_dim=8,
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=40, max_window_layers=2, attention_bias=False,
        rms_norm_eps=1e-6, rope_theta=1e6, sliding_window=None, use_sliding_window=False, tie_word_embeddings=True), 46)
    make_read_back("gemma", transformers.GemmaForCausalLM, dict(
        LLAMA_KEYS, architectures=["GemmaForCausalLM"], model_type="gemma", vocab_size=59, hidden_size=24, intermediate_size=40, head_dim=16,
        num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=40, attention_bias=False,
        hidden_act="gelu", hidden_activation=None, rms_norm_eps=1e-6, rope_theta=1e4, pad_token_id=0, bos_token_id=2, eos_token_id=1), 47)
    make_read_back("phi3", transformers.Phi3ForCausalLM, dict(
        LLAMA_KEYS, architectures=["Phi3ForCausalLM"], model_type="phi3", vocab_size=53, hidden_size=32, intermediate_size=36,
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=40, original_max_position_embeddings=40,
        rms_norm_eps=1e-5, rope_theta=1e4, rope_scaling=None, partial_rotary_factor=0.75, sliding_window=5, tie_word_embeddings=False,
        embd_pdrop=0.0, resid_pdrop=0.0, attention_bias=False, pad_token_id=2), 48)


def make_gemma2():
    # a window in the first layer and not in the second; bounds that scores and logits come near to
    make_read_back("gemma2", transformers.Gemma2ForCausalLM, dict(
        {key: value for key, value in LLAMA_KEYS.items() if key != "hidden_act"}, architectures=["Gemma2ForCausalLM"], model_type="gemma2",
        vocab_size=59, hidden_size=24, intermediate_size=40, head_dim=8, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=40, attention_bias=False, hidden_activation="gelu_pytorch_tanh", rms_norm_eps=1e-6, rope_theta=1e4, sliding_window=5,
        query_pre_attn_scalar=6, attn_logit_softcapping=1.5, final_logit_softcapping=2.0, pad_token_id=0, bos_token_id=2, eos_token_id=1), 52)


def make_scaled_llamas():
    # Of the 8 frequencies of a head of 16 the wavelengths are 6.3, 20, 63, 199 and longer: below 64 / 4 one is kept, above
    # 64 / 1 five are divided by 8, and two lie between.
    make_read_back("llama3_scaled", transformers.LlamaForCausalLM, dict(
        LLAMA_KEYS, architectures=["LlamaForCausalLM"], model_type="llama", vocab_size=59, hidden_size=24, intermediate_size=40,
        num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=16, max_position_embeddings=512,
        rms_norm_eps=1e-5, attention_bias=False, mlp_bias=False, pretraining_tp=1, rope_theta=1e4, tie_word_embeddings=True,
        eos_token_id=[2, 3], rope_scaling=dict(factor=8.0, high_freq_factor=4.0, low_freq_factor=1.0,
                                               original_max_position_embeddings=64, rope_type="llama3")), 8)
    fixture.make("llama_linear_scaled", eager(transformers.LlamaForCausalLM, transformers.LlamaConfig(
        vocab_size=53, max_position_embeddings=80, hidden_size=24, intermediate_size=36, num_hidden_layers=2, num_attention_heads=3,
        num_key_value_heads=3, rms_norm_eps=1e-6, tie_word_embeddings=False, attention_bias=True, mlp_bias=True,
        rope_parameters=dict(rope_type="linear", factor=2.0, rope_theta=1e4), bos_token_id=1, eos_token_id=2, pad_token_id=-1)), 9)


def make_bloom():
    # 3 heads: two slopes of the power of two below, one of the odd slopes of the power above
    make_read_back("bloom", transformers.BloomForCausalLM, dict(
        architectures=["BloomForCausalLM"], model_type="bloom", apply_residual_connection_post_layernorm=False, attention_dropout=0.0,
        attention_softmax_in_fp32=True, bos_token_id=1, eos_token_id=2, pad_token_id=3, unk_token_id=0, hidden_dropout=0.0,
        initializer_range=0.02, layer_norm_epsilon=1e-5, masked_softmax_fusion=True, n_embed=24, n_inner=None, n_layer=2, n_head=3,
        offset_alibi=100, pretraining_tp=1, skip_bias_add=True, skip_bias_add_qkv=False, slow_but_exact=False, seq_length=40,
        use_cache=True, vocab_size=61, torch_dtype="float32"), 10)


def with_auxiliary_loss(model, rows):
    """The loss that transformers returns: cross-entropy plus the coefficient times the load-balancing loss."""
    result = model(input_ids=rows["inputs"], labels=rows["targets"], shift_labels=rows["targets"])
    return dict(logits=result.logits, loss=result.loss, auxiliary_loss=result.aux_loss)


def expert_gradients(model):
    """transformers keeps the experts of a layer in one tensor and gate and up as one; files have a matrix each."""
    out = {}
    for name, p in model.named_parameters():
        name = name.replace(".mlp.", ".block_sparse_moe.")
        if name.endswith("experts.gate_up_proj"):
            for e, (w1, w3) in enumerate(g.chunk(2) for g in p.grad):
                out |= {name.replace("gate_up_proj", f"{e}.w1.weight"): w1, name.replace("gate_up_proj", f"{e}.w3.weight"): w3}
        elif name.endswith("experts.down_proj"):
            out |= {name.replace("down_proj", f"{e}.w2.weight"): w2 for e, w2 in enumerate(p.grad)}
        else:
            out[name] = p.grad
    return out


def make_mixtral():
    for name, window, seed in (("mixtral", 5, 11), ("mixtral_full_attention", None, 12)):
        make_read_back(name, transformers.MixtralForCausalLM, dict(
            LLAMA_KEYS, architectures=["MixtralForCausalLM"], model_type="mixtral", vocab_size=47, hidden_size=24,
            intermediate_size=32, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=40,
            rms_norm_eps=1e-5, rope_theta=1e6, sliding_window=window, tie_word_embeddings=False, num_local_experts=4,
            num_experts_per_tok=2, output_router_logits=True, router_aux_loss_coef=0.02), seed,
            compute=with_auxiliary_loss, gradients=expert_gradients)


def padded_rows(classes):
    """Rows of two segments, padded to one length: tokens, token types, a mask that is 0 at padding, a label for each row."""
    def draw(rng, shape, vocabulary):
        t = shape[-1]
        places = torch.arange(t)
        length = fixture.tokens(rng, (*shape[:-1], 1), max(t // 2, 1)) + (t + 1) // 2  # at least half of a row
        length[(0,) * length.dim()] = t  # and one is full
        mask = (places < length).long()
        second = (places >= fixture.tokens(rng, (*shape[:-1], 1), t) + 1).long() * mask
        inputs = fixture.tokens(rng, shape, vocabulary) * mask  # 0 is padding, and now and then a token that is seen
        targets = fixture.with_gaps(rng, fixture.tokens(rng, shape, vocabulary)).masked_fill(mask == 0, -100)
        return dict(inputs=inputs, targets=targets, token_types=second, mask=mask, labels=fixture.tokens(rng, shape[:-1], classes))
    return draw


def ask_bert(model, rows, **labels):
    return model(input_ids=rows["inputs"], token_type_ids=rows["token_types"], attention_mask=rows["mask"], **labels)


def pretraining(model, rows):
    """The mean over masked tokens plus the mean over sequences; a label of 1 says that the second segment does not follow."""
    result = ask_bert(model, rows, labels=rows["targets"], next_sentence_label=rows["labels"])
    return dict(logits=result.prediction_logits, sentence_logits=result.seq_relationship_logits, loss=result.loss)


def classification(model, rows):
    result = ask_bert(model, rows, labels=rows["labels"])
    return dict(logits=result.logits, loss=result.loss)


def without_targets(draw):
    def drawn(*arguments):
        rows = draw(*arguments)
        del rows["targets"]
        return rows
    return drawn


def make_bert():
    sizes = dict(vocab_size=53, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40,
                 max_position_embeddings=37, type_vocab_size=2, **NO_DROPOUT)
    fixture.make("bert_pretraining", eager(transformers.BertForPreTraining, transformers.BertConfig(**sizes)), 13,
                 draw=padded_rows(2), compute=pretraining)
    fixture.make("bert_classification", eager(transformers.BertForSequenceClassification, transformers.BertConfig(
        **sizes, num_labels=3)), 14, draw=without_targets(padded_rows(3)), compute=classification)


def make_adapters():
    # q_proj has scale 12 / sqrt(3), v_proj rank 5, down_proj alpha 7, all of the second layer only; the embedding, and with it the
    # tied head, is replaced
    fixture.make_adapter("qwen2_lora_rich", "qwen2", ["q_proj", "v_proj", "down_proj"], 24, use_rslora=True, use_dora=True,
                         rank_pattern={"v_proj": 5}, alpha_pattern={"down_proj": 7}, layers_to_transform=[1],
                         modules_to_save=["embed_tokens"], ensure_weight_tying=True, bias="none")
    fixture.make_adapter("bloom_lora", "bloom", ["query_key_value"], 25)
    fixture.make_prefix("llama_prefix", "llama_grouped_untied", 26)
    fixture.make_prefix("bloom_prefix", "bloom", 27)


def make_all():
    make_gpt2_and_llama()
    make_mistral()
    make_qwen2()
    make_qwen3_gemma_phi3()
    make_gemma2()
    make_scaled_llamas()
    make_bloom()
    make_mixtral()
    make_bert()
    make_adapters()
