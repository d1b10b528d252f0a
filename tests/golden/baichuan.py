"""Baichuan and Baichuan 2, from "Baichuan 2: Open Large-scale Language Models" (Yang et al. 2023), the models' cards and the
published modelling code, read for its facts.

A LLaMA whose q, k and v are one matrix W_pack. The 7B models turn q and k (rotary embedding of halves); the 13B ones do not and
add ALiBi slopes to the scores instead. Baichuan 2 normalizes the rows of its head in every forward of training (NormHead) and
adds z_loss_weight times the mean, over all tokens, of the square of the largest logit.
"""

import torch
import torch.nn.functional as F

import fixture
from formulas import alibi_slopes, attention, causal_bias, file_model, rms_norm, rotary_of_halves, swiglu


class baichuan(file_model):
    def __init__(self, config, alibi=False, norm_head=False):
        c, f, v = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
        shapes = {"model.embed_tokens.weight": (v, c), "model.norm.weight": (c,), "lm_head.weight": (v, c)}
        for i in range(config["num_hidden_layers"]):
            at = f"model.layers.{i}."
            shapes |= {at + "self_attn.W_pack.weight": (3 * c, c), at + "self_attn.o_proj.weight": (c, c),
                       at + "mlp.gate_proj.weight": (f, c), at + "mlp.up_proj.weight": (f, c), at + "mlp.down_proj.weight": (c, f),
                       at + "input_layernorm.weight": (c,), at + "post_attention_layernorm.weight": (c,)}
        super().__init__(config, shapes)
        self.alibi, self.norm_head = alibi, norm_head

    def bias(self, t):
        if not self.alibi:
            return causal_bias(t)
        back = torch.arange(t)[None, :] - torch.arange(t)[:, None]  # 0 at the position itself, -1 one before
        return causal_bias(t) + alibi_slopes(self.settings.num_attention_heads)[:, None, None] * back

    def attend(self, x_btc, at):
        b, t, c = x_btc.shape
        q, k, v = (x.reshape(b, t, self.settings.num_attention_heads, -1) for x in self.linear(x_btc, at + "W_pack").chunk(3, -1))
        if not self.alibi:
            positions = torch.arange(t)[None, :]
            q, k = rotary_of_halves(q, positions, 1e4), rotary_of_halves(k, positions, 1e4)
        return self.linear(attention(q, k, v, self.bias(t)), at + "o_proj")

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
        head = self["lm_head.weight"]
        if self.norm_head:
            head = head / head.norm(dim=-1, keepdim=True).clamp_min(1e-12)
        return F.linear(self.hidden(inputs), head)


def full_rows(rng, shape, vocabulary):
    """Every token has a target: for others the published code counts the z-loss, and xtrain does not."""
    inputs = fixture.tokens(rng, shape, vocabulary)
    return dict(inputs=inputs, targets=fixture.tokens(rng, shape, vocabulary))


def with_z_loss(model, rows):
    logits = model(rows["inputs"])
    z_loss = model.settings.z_loss_weight * logits.max(-1).values.square().mean()
    return dict(logits=logits, loss=fixture.cross_entropy(logits, rows["targets"]) + z_loss, z_loss=z_loss)
