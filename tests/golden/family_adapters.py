"""Adapters that peft makes for each family, of every linear layer of its blocks where nothing else is said.

Where transformers has no class for a family, peft puts them beside the modules of the formulas that are written out here.
"""

import json

import torch
import transformers

import fixture
from baichuan import baichuan
from chatglm1 import chatglm1, rows_with_context
from chatglm2 import chatglm2
from families_transformers import ask_bert, padded_rows
from internlm import internlm, internlm2

ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
FEED_FORWARD = ["gate_proj", "up_proj", "down_proj"]
CHATGLM = ["query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"]


def formulas_of(family, base):
    """The family's formulas with the weights of a fixture."""
    config = json.loads((fixture.HERE / base / "config.json").read_text())
    return family(config).load_pretrained(fixture.HERE / base).with_linear_modules()


def vocabulary_of(model):
    return model.config.get("vocab_size") or model.config["padded_vocab_size"]


def make_beside_formulas(name, family, base, targets, seed, draw=fixture.tokens):
    """draw makes inputs of a shape, given the vocabulary."""
    fixture.make_adapter(name, base, targets, seed, task_type=None, model=formulas_of(family, base),
                         draw=lambda rng, model: dict(inputs=draw(rng, (2, 9), vocabulary_of(model))),
                         ask=lambda model, rows: model(rows["inputs"]))


def make_llamas():
    fixture.make_adapter("mistral_lora", "mistral", ATTENTION + FEED_FORWARD, 30)
    # transformers has the experts of a layer in one tensor, so peft's linear modules are those of attention
    fixture.make_adapter("mixtral_lora", "mixtral", ATTENTION, 31)
    aquila = transformers.LlamaForCausalLM.from_pretrained(
        fixture.HERE / "aquila", config=transformers.LlamaConfig.from_pretrained(fixture.HERE / "aquila"), torch_dtype=torch.float32)
    fixture.make_adapter("aquila_lora", "aquila", ATTENTION + FEED_FORWARD, 32, model=aquila)


def make_newer_llamas():
    fixture.make_adapter("qwen3_lora", "qwen3", ATTENTION + FEED_FORWARD, 49)
    fixture.make_adapter("gemma_lora", "gemma", ATTENTION + FEED_FORWARD, 50)
    fixture.make_adapter("gemma2_lora", "gemma2", ATTENTION + FEED_FORWARD, 53)
    fixture.make_adapter("phi3_lora", "phi3", ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"], 51)


def make_published():
    make_beside_formulas("baichuan_lora", baichuan, "baichuan_rotary", ["W_pack", "o_proj"] + FEED_FORWARD, 33)
    make_beside_formulas("internlm_lora", internlm, "internlm", ATTENTION + FEED_FORWARD, 34)
    make_beside_formulas("internlm2_lora", internlm2, "internlm2", ["wqkv", "wo", "w1", "w3", "w2"], 35)
    make_beside_formulas("chatglm2_lora", chatglm2, "chatglm2", CHATGLM, 36)
    config = json.loads((fixture.HERE / "chatglm1" / "config.json").read_text())
    make_beside_formulas("chatglm1_lora", chatglm1, "chatglm1", CHATGLM, 37,
                         lambda *arguments: rows_with_context(config)(*arguments)["inputs"])


def make_bert():
    """Pre-training with adapters of every linear layer, heads included; and labels of sequences as peft's own task has them: its choice of
    modules, and the classifier is trained itself."""
    def draw(classes):
        def drawn(rng, model):
            rows = padded_rows(classes)(rng, (2, 9), model.config.vocab_size)
            return {key: rows[key] for key in ("inputs", "token_types", "mask", "labels")}
        return drawn

    def pretraining(model, rows):
        result = ask_bert(model, rows)
        return dict(logits=result.prediction_logits, sentence_logits=result.seq_relationship_logits)

    def loaded(model_class, base):
        return model_class.from_pretrained(fixture.HERE / base, torch_dtype=torch.float32)
    fixture.make_adapter("bert_pretraining_lora", "bert_pretraining", ["query", "key", "value", "dense"], 38, task_type=None,
                         model=loaded(transformers.BertForPreTraining, "bert_pretraining"), draw=draw(2), ask=pretraining)
    fixture.make_adapter("bert_classification_lora", "bert_classification", None, 39, task_type="SEQ_CLS",
                         model=loaded(transformers.BertForSequenceClassification, "bert_classification"), draw=draw(3),
                         ask=lambda model, rows: ask_bert(model, rows).logits)


def make_all():
    make_llamas()
    make_newer_llamas()
    make_published()
    make_bert()
