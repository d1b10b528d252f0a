"""ChatGLM2 and ChatGLM3, from the models' cards and configurations and "ChatGLM: A Family of Large Language Models" (GLM team
2024); names and layouts from the published files.

Causal, rms norm before each branch and at the end, biases of q, k and v only. Key/value heads are shared by groups of query
heads; rows of query_key_value are all queries, all keys, all values. The first half of each head's dims is turned, neighbors
forming pairs; rope_ratio multiplies the base. Rows of dense_h_to_4h are the gate, then what it gates.

P-tuning v2 (Liu et al. 2022) puts keys and values in front of each layer's. They are not turned, and the first token behind them still
stands at position 0. prefix_projection makes them with two linear layers and a tanh between.
"""

import torch
import torch.nn.functional as F

from formulas import attention, causal_bias, file_model, rms_norm, rotary_of_neighbours, swiglu


class chatglm2(file_model):
    def __init__(self, config, with_head=True):
        c, f, v, d = (config[key] for key in ("hidden_size", "ffn_hidden_size", "padded_vocab_size", "kv_channels"))
        heads, groups = config["num_attention_heads"], config["multi_query_group_num"]
        shapes = {"transformer.embedding.word_embeddings.weight": (v, c), "transformer.encoder.final_layernorm.weight": (c,)}
        shapes |= {"transformer.output_layer.weight": (v, c)} if with_head else {}
        for i in range(config["num_layers"]):
            at, rows = f"transformer.encoder.layers.{i}.", (heads + 2 * groups) * d
            shapes |= {at + "input_layernorm.weight": (c,), at + "post_attention_layernorm.weight": (c,),
                       at + "self_attention.query_key_value.weight": (rows, c), at + "self_attention.query_key_value.bias": (rows,),
                       at + "self_attention.dense.weight": (c, heads * d),
                       at + "mlp.dense_h_to_4h.weight": (2 * f, c), at + "mlp.dense_4h_to_h.weight": (c, f)}
        super().__init__(config, shapes)

    def half_turned(self, x_bthd):
        turning, kept = x_bthd.chunk(2, -1)
        base = 1e4 * getattr(self.settings, "rope_ratio", 1)
        return torch.cat([rotary_of_neighbours(turning, torch.arange(x_bthd.shape[1])[None, :], base), kept], -1)

    def attend(self, x_btc, at):
        b, t, _ = x_btc.shape
        heads, groups, d = self.settings.num_attention_heads, self.settings.multi_query_group_num, self.settings.kv_channels
        parts = self.linear(x_btc, at + "query_key_value", True).split([heads * d, groups * d, groups * d], -1)
        q, k, v = (part.reshape(b, t, -1, d) for part in parts)
        return self.linear(self.attention_of(at, self.half_turned(q), self.half_turned(k), v), at + "dense")

    def attention_of(self, at, q_bthd, k_btkd, v_btkd):
        return attention(q_bthd, k_btkd, v_btkd, causal_bias(q_bthd.shape[1]))

    def hidden(self, inputs):
        eps = self.settings.layernorm_epsilon
        x = self["transformer.embedding.word_embeddings.weight"][inputs]
        for i in range(self.settings.num_layers):
            at = f"transformer.encoder.layers.{i}."
            x = x + self.attend(rms_norm(x, self[at + "input_layernorm.weight"], eps), at + "self_attention.")
            y = rms_norm(x, self[at + "post_attention_layernorm.weight"], eps)
            x = x + self.linear(swiglu(*self.linear(y, at + "mlp.dense_h_to_4h").chunk(2, -1)), at + "mlp.dense_4h_to_h")
        return rms_norm(x, self["transformer.encoder.final_layernorm.weight"], eps)

    def forward(self, inputs):
        return self.linear(self.hidden(inputs), "transformer.output_layer")


class chatglm2_behind_prefix(chatglm2):
    """network: of prefix_encoder, the tensors of its embedding and of trans.0 and trans.2."""

    def __init__(self, config, network):
        super().__init__(config)
        inner = torch.tanh(F.linear(network["embedding.weight"], network["trans.0.weight"], network["trans.0.bias"]))
        made = F.linear(inner, network["trans.2.weight"], network["trans.2.bias"])
        self.prefix_plskd = made.reshape(len(made), config["num_layers"], 2, config["multi_query_group_num"], config["kv_channels"])

    def attention_of(self, at, q_bthd, k_btkd, v_btkd):
        b, t = q_bthd.shape[:2]
        prefix_psbkd = self.prefix_plskd[:, int(at.split(".")[3])].unsqueeze(2).expand(-1, -1, b, -1, -1)
        k, v = (torch.cat([prefix_psbkd[:, s].transpose(0, 1), x], 1) for s, x in enumerate((k_btkd, v_btkd)))
        bias = torch.cat([torch.zeros(t, len(prefix_psbkd)), causal_bias(t)], 1)
        return attention(q_bthd, k, v, bias)
