"""Makes generation/expected.safetensors: distributions after transformers' logits processors, and beam searches of llama_grouped_untied. For people; no test
runs it.

    python make_generation.py
"""

import importlib.metadata
import pathlib

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, GenerationConfig
from transformers.generation import logits_process as lp

HERE = pathlib.Path(__file__).resolve().parent

VOCABULARY, SEEN, NEW = 24, 14, 6
# in the order in which transformers' generate applies them
SAMPLING = {
    "repetition": dict(repetition_penalty=1.7),
    "temperature_top_k": dict(temperature=0.7, top_k=5),
    "top_k_ties": dict(temperature=1.3, top_k=4, ties=True),
    "temperature_top_p": dict(temperature=1.4, top_p=0.7),
    "min_p": dict(temperature=1.5, min_p=0.25),
    "top_k_top_p": dict(temperature=2.0, top_k=9, top_p=0.8),
    "top_p_min_p": dict(temperature=2.0, top_p=0.9, min_p=0.3),
    "all_of_them": dict(repetition_penalty=1.4, temperature=1.8, top_k=12, top_p=0.85, min_p=0.2),
    "ngrams": dict(no_repeat_ngram_size=3, temperature=1.0),
    "bad_words": dict(bad_words=True, temperature=1.0),
    "biases": dict(biases=True, repetition_penalty=1.3, temperature=1.0),
    "min_new_tokens": dict(min_new_tokens=NEW + 1, temperature=1.0, top_p=0.9),
    "everything": dict(biases=True, repetition_penalty=1.3, no_repeat_ngram_size=2, bad_words=True, min_new_tokens=NEW + 1, temperature=1.2, top_k=10,
                       top_p=0.95, min_p=0.05),
}
STOP = [3, 8]
BAD_WORDS = [[5], [2, 6, 9]]
BIASES = [[[4], 2.5], [[6, 10], 1.75], [[1, 12], 9.0]]
BEAMS = {
    "plain": dict(num_beams=4),
    "five_returned": dict(num_beams=5, num_return_sequences=5, length_penalty=0.0),
    "long": dict(num_beams=3, length_penalty=2.0, num_return_sequences=2),
    "short": dict(num_beams=4, length_penalty=-1.0, num_return_sequences=3),
    "early": dict(num_beams=4, early_stopping=True, num_return_sequences=4),
    "never": dict(num_beams=3, early_stopping="never", length_penalty=1.5, num_return_sequences=3),
    "penalties": dict(num_beams=4, repetition_penalty=1.5, no_repeat_ngram_size=2, num_return_sequences=2),
    "late": dict(num_beams=3, min_new_tokens=8, num_return_sequences=3),
}
BEAM_STOP = [15, 43]


def processors(o):
    if o.get("biases"):
        yield lp.SequenceBiasLogitsProcessor(BIASES)
    if "repetition_penalty" in o:
        yield lp.RepetitionPenaltyLogitsProcessor(o["repetition_penalty"])
    if "no_repeat_ngram_size" in o:
        yield lp.NoRepeatNGramLogitsProcessor(o["no_repeat_ngram_size"])
    if o.get("bad_words"):
        yield lp.NoBadWordsLogitsProcessor(BAD_WORDS, torch.tensor(STOP))
    if "min_new_tokens" in o:
        yield lp.MinNewTokensLengthLogitsProcessor(SEEN - NEW, o["min_new_tokens"], torch.tensor(STOP))
    if "temperature" in o:
        yield lp.TemperatureLogitsWarper(o["temperature"])
    if "top_k" in o:
        yield lp.TopKLogitsWarper(o["top_k"])
    if "top_p" in o:
        yield lp.TopPLogitsWarper(o["top_p"])
    if "min_p" in o:
        yield lp.MinPLogitsWarper(o["min_p"])


def make_distributions(out):
    rng = np.random.default_rng(51)
    seen = rng.integers(0, 11, (1, SEEN))
    seen[0, -2:] = [2, 6]  # a bad word's beginning, and a biased one's
    seen[0, 4:7] = [2, 6, 9]
    seen = torch.from_numpy(seen)
    out["seen"] = seen[0].float()
    for name, o in SAMPLING.items():
        logits = torch.from_numpy(rng.normal(0, 2, (1, VOCABULARY))).float()
        if o.get("ties"):
            logits = torch.round(logits)
        scores = logits
        for processor in processors(o):
            scores = processor(seen, scores)
        out[f"{name}.logits"] = logits[0]
        out[f"{name}.probabilities"] = torch.softmax(scores[0], -1)


def make_beams(out):
    model = AutoModelForCausalLM.from_pretrained(HERE / "llama_grouped_untied", dtype=torch.float32).eval()
    with torch.no_grad():  # sharper, so that texts differ in probability
        model.lm_head.weight *= 2
    out["scale"] = torch.tensor([2.0])
    rng = np.random.default_rng(52)
    for number, length in enumerate([3, 9]):
        prompt = torch.from_numpy(rng.integers(1, 60, (1, length)))
        out[f"prompt{number}"] = prompt[0].float()
        for name, o in BEAMS.items():
            config = GenerationConfig(max_new_tokens=14, do_sample=False, eos_token_id=BEAM_STOP, pad_token_id=66, output_scores=True,
                                      return_dict_in_generate=True, use_cache=True, **o)
            done = model.generate(prompt, attention_mask=torch.ones_like(prompt), generation_config=config)
            for i, (tokens, score) in enumerate(zip(done.sequences, done.sequences_scores)):
                new = [t for t in tokens[length:].tolist() if t != 66]
                out[f"{name}{number}.tokens{i}"] = torch.tensor(new).float()
                out[f"{name}{number}.score{i}"] = score.reshape(1).float()
                print(name, number, round(score.item(), 4), new)


if __name__ == "__main__":
    out = {}
    make_distributions(out)
    make_beams(out)
    (HERE / "generation").mkdir(exist_ok=True)
    save_file({k: v.contiguous() for k, v in out.items()}, HERE / "generation" / "expected.safetensors")
    (HERE / "VERSIONS_generation").write_text("".join(f"{p} {importlib.metadata.version(p)}\n" for p in ("torch", "transformers")))
