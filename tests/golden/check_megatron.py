"""Compares gpt_samples with Megatron Core itself: the order of samples for a file that its builder writes, and its blends.

By hand, where megatron-core (0.16.1) is installed: python check_megatron.py
"""

import pathlib
import tempfile

import numpy as np
import torch
from megatron.core.datasets import helpers
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder
from megatron.core.datasets.utils import Split

from make_gpt_samples import blend, gpt_index, lengths


class no_tokenizer:
    unique_identifiers = {}
    vocab_size = 2000
    eod = pad = 0


def main():
    with tempfile.TemporaryDirectory() as folder:
        prefix = str(pathlib.Path(folder) / "data")
        sizes = lengths(40)
        builder = IndexedDatasetBuilder(prefix + ".bin", dtype=np.uint16)
        for size in sizes:
            builder.add_document(torch.arange(size), [size])
        builder.finalize(prefix + ".idx")
        for first, last, seq_length, samples, seed in [(0, 40, 16, 30, 1234), (3, 33, 16, 190, 7), (0, 40, 16, 140, 2023), (38, 40, 16, 9, 4294967295)]:
            config = GPTDatasetConfig(random_seed=seed, sequence_length=seq_length, blend=([prefix], None), split="1", reset_position_ids=False,
                                      reset_attention_mask=False, eod_mask_loss=False, create_attention_mask=False, tokenizer=no_tokenizer())
            theirs = GPTDataset(IndexedDataset(prefix), prefix, np.arange(first, last, dtype=np.int32), samples, Split.train, config)
            ours = gpt_index(sizes, first, last, seq_length, samples, seed)
            for mine, other in [("documents", "document_index"), ("samples", "sample_index"), ("order", "shuffle_index")]:
                assert np.array_equal(ours[mine], np.asarray(getattr(theirs, other)).reshape(-1)), (first, last, samples, seed, mine)
    for weights in [[0.3, 0.7], [1.0, 1.0, 2.0], [float(k % 5 + 1) for k in range(21)]]:
        source, sample = np.zeros(300, dtype=np.int16), np.zeros(300, dtype=np.int64)
        helpers.build_blending_indices(source, sample, np.array(weights) / sum(weights), len(weights), 300, False)
        assert source.tolist() == blend(weights, 300), weights
    print("the order of samples is Megatron Core's")


if __name__ == "__main__":
    main()
