"""InternLM and InternLM2, from "InternLM2 Technical Report" (Cai et al. 2024), the models' cards and configurations.

InternLM is LLaMA with biases of q, k, v and o where "bias" is true. InternLM2 has no biases, other names, and one matrix wqkv
whose rows lie by groups: for each key/value head its queries, then its key, then its value.
"""

import torch
import torch.nn.functional as F

from formulas import attention, causal_bias, file_model, rms_norm, rotary_of_halves, swiglu


def rotary(q, k, base):
    positions = torch.arange(q.shape[1])[None, :]
    return rotary_of_halves(q, positions, base), rotary_of_halves(k, positions, base)


class internlm(file_model):
    def __init__(self, config, with_head=True):
        c, f, v = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
        shapes = {"model.embed_tokens.weight": (v, c), "model.norm.weight": (c,)} | ({"lm_head.weight": (v, c)} if with_head else {})
        for i in range(config["num_hidden_layers"]):
            at = f"model.layers.{i}."
            for name in "qkvo":
                shapes |= {at + f"self_attn.{name}_proj.weight": (c, c)}
                shapes |= {at + f"self_attn.{name}_proj.bias": (c,)} if config["bias"] else {}
            shapes |= {at + "mlp.gate_proj.weight": (f, c), at + "mlp.up_proj.weight": (f, c), at + "mlp.down_proj.weight": (c, f),
                       at + "input_layernorm.weight": (c,), at + "post_attention_layernorm.weight": (c,)}
        super().__init__(config, shapes)

    def attend(self, x_btc, at):
        b, t, _ = x_btc.shape
        q, k, v = (self.linear(x_btc, f"{at}{name}_proj", self.settings.bias).reshape(b, t, self.settings.num_attention_heads, -1)
                   for name in "qkv")
        q, k = rotary(q, k, 1e4)
        return self.linear(attention(q, k, v, causal_bias(t)), at + "o_proj", self.settings.bias)

    def hidden(self, inputs):
        eps = self.settings.rms_norm_eps
        x = F.embedding(inputs, self["model.embed_tokens.weight"], padding_idx=self.settings.pad_token_id)
        for i in range(self.settings.num_hidden_layers):
            at = f"model.layers.{i}."
            x = x + self.attend(rms_norm(x, self[at + "input_layernorm.weight"], eps), at + "self_attn.")
            y = rms_norm(x, self[at + "post_attention_layernorm.weight"], eps)
            y = swiglu(self.linear(y, at + "mlp.gate_proj"), self.linear(y, at + "mlp.up_proj"))
            x = x + self.linear(y, at + "mlp.down_proj")
        return rms_norm(x, self["model.norm.weight"], eps)

    def forward(self, inputs):
        return self.linear(self.hidden(inputs), "lm_head")


class internlm2(file_model):
    def __init__(self, config):
        c, f, v = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
        heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
        shapes = {"model.tok_embeddings.weight": (v, c), "model.norm.weight": (c,), "output.weight": (v, c)}
        for i in range(config["num_hidden_layers"]):
            at = f"model.layers.{i}."
            shapes |= {at + "attention.wqkv.weight": ((heads + 2 * groups) * (c // heads), c), at + "attention.wo.weight": (c, c),
                       at + "feed_forward.w1.weight": (f, c), at + "feed_forward.w3.weight": (f, c),
                       at + "feed_forward.w2.weight": (c, f),
                       at + "attention_norm.weight": (c,), at + "ffn_norm.weight": (c,)}
        super().__init__(config, shapes)

    def attend(self, x_btc, at):
        b, t, c = x_btc.shape
        heads, groups = self.settings.num_attention_heads, self.settings.num_key_value_heads
        qkv = self.linear(x_btc, at + "wqkv").reshape(b, t, groups, heads // groups + 2, c // heads)
        q, k, v = qkv[:, :, :, :-2].flatten(2, 3), qkv[:, :, :, -2], qkv[:, :, :, -1]
        q, k = rotary(q, k, self.settings.rope_theta)
        return self.linear(attention(q, k, v, causal_bias(t)), at + "wo")

    def forward(self, inputs):
        eps = self.settings.rms_norm_eps
        x = F.embedding(inputs, self["model.tok_embeddings.weight"], padding_idx=self.settings.pad_token_id)
        for i in range(self.settings.num_hidden_layers):
            at = f"model.layers.{i}."
            x = x + self.attend(rms_norm(x, self[at + "attention_norm.weight"], eps), at + "attention.")
            y = rms_norm(x, self[at + "ffn_norm.weight"], eps)
            y = swiglu(self.linear(y, at + "feed_forward.w1"), self.linear(y, at + "feed_forward.w3"))
            x = x + self.linear(y, at + "feed_forward.w2")
        return self.linear(rms_norm(x, self["model.norm.weight"], eps), "output")
