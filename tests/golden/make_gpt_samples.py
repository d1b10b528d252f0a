"""The order of samples of Megatron-LM's GPT dataset, from its published algorithm, with numpy's own generator.

Writes gpt_samples/expected.safetensors: integers, as fp32. Needs only numpy and safetensors. Document d of the synthetic file has
(d * 37 + 11) % 53 tokens: some have none, some are longer than a sample.
"""

import math
import pathlib

import numpy as np
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).resolve().parent


def lengths(count):
    return [(d * 37 + 11) % 53 for d in range(count)]


def gpt_index(sizes, first, last, seq_length, samples, seed):
    rng = np.random.RandomState(seed=seed)
    per_epoch = sum(sizes[first:last])
    epochs, total = 0, 0
    while True:
        epochs, total = epochs + 1, total + per_epoch
        if (total - 1) // seq_length >= samples:
            break
    separate, before = False, 0
    if epochs > 1:
        before = ((epochs - 1) * per_epoch - 1) // seq_length
        separate = samples - before < int(0.80 * ((per_epoch - 1) // seq_length))

    def shuffled(values):
        rng.shuffle(values)
        return values

    documents = np.arange(first, last, dtype=np.int32)
    if separate:
        order = np.concatenate([shuffled(np.tile(documents, epochs - 1)), shuffled(documents.copy())])
    else:
        order = shuffled(np.tile(documents, epochs))
    # where every token of the shuffled documents is: sample s begins at token s * seq_length
    places = [(i, offset) for i, d in enumerate(order) for offset in range(sizes[d])]
    count = (epochs * per_epoch - 1) // seq_length
    begins = np.array([places[s * seq_length] for s in range(count + 1)], dtype=np.int32)
    dtype = np.uint32
    if separate:
        shuffle = np.concatenate([shuffled(np.arange(0, before, dtype=dtype)), shuffled(np.arange(before, count, dtype=dtype))])
    else:
        shuffle = shuffled(np.arange(0, count, dtype=dtype))
    return dict(epochs=[epochs], separate=[int(separate)], documents=order, samples=begins.reshape(-1), order=shuffle)


def blend(weights, size):
    given = np.array([w / sum(weights) for w in weights], dtype=np.float64)
    given /= np.sum(given)
    taken = [0] * len(weights)
    result = []
    for i in range(size):
        behind = [w * max(float(i), 1.0) - float(n) for w, n in zip(given.tolist(), taken)]
        result.append(int(np.argmax(behind)))  # the first of equal ones
        taken[result[-1]] += 1
    return result


def split(text, size):
    weights = [float(s) for s in text.split("," if "," in text else "/")]
    weights = (weights + [0.0] * 3)[:3]
    weights = [w / sum(weights) for w in weights]
    at = [0]
    for w in weights:
        at.append(at[-1] + int(round(w * float(size))))
    extra = at[-1] - size
    return [0] + [a - extra for a in at[1:]]


def position_sum(values):
    """Tells permutations apart."""
    return [int(sum((i + 1) * int(v) for i, v in enumerate(values)) % 16777213)]


def main():
    out = {}
    for name, case in {
        "one": (lengths(40), 0, 40, 16, 30, 1234),
        "whole": (lengths(40), 3, 33, 16, 190, 7),  # the last epoch is used almost whole
        "separate": (lengths(40), 0, 40, 16, 140, 2023),
        "short": (lengths(40), 38, 40, 16, 9, 4294967295),  # an epoch is a sample or two
    }.items():
        for key, values in gpt_index(*case).items():
            out[f"{name}.{key}"] = np.array(values, dtype=np.float32)
    for seed, size in [(0, 1000), (1234, 65537), (2023, 300000)]:
        values = np.arange(size, dtype=np.int64)
        np.random.RandomState(seed).shuffle(values)
        out[f"shuffle.{seed}"] = np.array(list(values[:8]) + position_sum(values), dtype=np.float32)
    for name, weights in {"two": [0.3, 0.7], "three": [1.0, 1.0, 2.0], "many": [float(k % 5 + 1) for k in range(21)]}.items():
        out[f"blend.{name}"] = np.array(blend(weights, 300), dtype=np.float32)
        out[f"blend.{name}.samples"] = np.array([int(math.ceil(300 * (w / sum(weights)) * 1.005)) for w in weights], dtype=np.float32)
    for i, (text, size) in enumerate([("969,30,1", 20), ("969,30,1", 10000), ("90,5,5", 33), ("100", 7), ("1/1/1", 100), ("98,2,0", 125)]):
        out[f"split.{i}"] = np.array(split(text, size), dtype=np.float32)
    (HERE / "gpt_samples").mkdir(exist_ok=True)
    save_file(out, HERE / "gpt_samples" / "expected.safetensors")
    (HERE / "VERSIONS_gpt_samples").write_text(f"numpy {np.__version__}\n")


if __name__ == "__main__":
    main()
