"""ChatGLM-6B, from "GLM: General Language Model Pretraining with Autoregressive Blank Infilling" (Du et al. 2022), "GLM-130B"
(Zeng et al. 2023; residuals scaled after DeepNet, Wang et al. 2022), the model's card and the published modelling code, read for
its facts.

A row is a context that holds a mask token, then the begin token, then what is generated. With s the place of the begin token
and m that of the mask token:
  attention mask  all positions attend to those before s, in both directions; from s on a position attends to itself and those before it
  positions       two for each place: (i, 0) before s, (m, i - s + 1) from s on. Half of a head's dims turns by the first, half
                  by the second, each as a rotary embedding of halves of its own
  residuals       the normalized input, not the input, is carried on: y = a n + attention(n) with n = norm(x), then
                  a n + feed_forward(n) with n = norm(y); a = sqrt(2 layers)
  layouts         query_key_value holds for each head its q, k and v rows; every linear has a bias but the head
"""

import math

import torch
import torch.nn.functional as F

import fixture
from formulas import attention, file_model, rotary_of_halves


class chatglm1(file_model):
    def __init__(self, config):
        c, f, v = config["hidden_size"], config["inner_hidden_size"], config["vocab_size"]
        shapes = {"transformer.word_embeddings.weight": (v, c), "lm_head.weight": (v, c)}

        def add(name, *shape):
            shapes.update({name + ".weight": shape, name + ".bias": shape[:1]})
        for i in range(config["num_layers"]):
            at = f"transformer.layers.{i}."
            add(at + "input_layernorm", c)
            add(at + "attention.query_key_value", 3 * c, c)
            add(at + "attention.dense", c, c)
            add(at + "post_attention_layernorm", c)
            add(at + "mlp.dense_h_to_4h", f, c)
            add(at + "mlp.dense_4h_to_h", c, f)
        add("transformer.final_layernorm", c)
        super().__init__(config, shapes)

    def norm(self, x, name):
        return F.layer_norm(x, x.shape[-1:], self[name + ".weight"], self[name + ".bias"], self.settings.layernorm_epsilon)

    def attend(self, n_btc, at, first_bt, second_bt, bias):
        b, t, _ = n_btc.shape
        q, k, v = self.linear(n_btc, at + "query_key_value", True).reshape(b, t, self.settings.num_attention_heads, -1).chunk(3, -1)

        def turned(x):
            by_first, by_second = x.chunk(2, -1)
            return torch.cat([rotary_of_halves(by_first, first_bt, 1e4), rotary_of_halves(by_second, second_bt, 1e4)], -1)
        return self.linear(attention(turned(q), turned(k), v, bias), at + "dense", True)

    def forward(self, inputs):
        t = inputs.shape[1]
        i = torch.arange(t)
        begin = (inputs == self.settings.bos_token_id).int().argmax(1, keepdim=True)
        mask = (inputs == self.settings.gmask_token_id).int().argmax(1, keepdim=True)
        first_bt, second_bt = torch.where(i < begin, i, mask), (i - begin + 1).clamp_min(0)
        seen = (i[None, :] <= i[:, None]) | (i < begin)[:, None, :]  # b, query, key
        bias = torch.zeros(seen.shape).masked_fill(~seen, -math.inf)[:, None]

        alpha = math.sqrt(2 * self.settings.num_layers)
        x = self["transformer.word_embeddings.weight"][inputs]
        for layer in range(self.settings.num_layers):
            at = f"transformer.layers.{layer}."
            n = self.norm(x, at + "input_layernorm")
            y = alpha * n + self.attend(n, at + "attention.", first_bt, second_bt, bias)
            n = self.norm(y, at + "post_attention_layernorm")
            inner = F.gelu(self.linear(n, at + "mlp.dense_h_to_4h", True), approximate="tanh")
            x = alpha * n + self.linear(inner, at + "mlp.dense_4h_to_h", True)
        return self.linear(self.norm(x, "transformer.final_layernorm"), "lm_head")


def rows_with_context(config):
    """Rows whose mask and begin tokens stand elsewhere in each; other tokens are below the special ones."""
    def draw(rng, shape, vocabulary):
        rows = fixture.plain_rows(rng, shape, vocabulary)
        inputs = rows["inputs"] % config["mask_token_id"]
        begin = fixture.tokens(rng, shape[:-1], shape[-1] - 2) + 1  # something before and after
        begin.view(-1)[0] = 2  # sequences differ
        begin.view(-1)[1] = shape[-1] - 2
        mask = (fixture.tokens(rng, shape[:-1], 2 ** 20)) % begin  # anywhere before
        mask.view(-1)[0] = 1  # where the tokenizer puts it: just before
        inputs.scatter_(-1, begin[..., None], config["bos_token_id"])
        inputs.scatter_(-1, mask[..., None], config["gmask_token_id"])
        return rows | dict(inputs=inputs)
    return draw
