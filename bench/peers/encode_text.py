#!/usr/bin/env python3
"""Tokenization with the packages `tokenizers`, `tiktoken` and `sentencepiece`: the same documents that bench/tokenize encodes.

    encode_text.py tokenizers TOKENIZER.JSON FILE [THREADS...]
    encode_text.py tiktoken   RANKS:FAMILY   FILE [THREADS...]      FAMILY: gpt2, cl100k, qwen, llama3
    encode_text.py sentencepiece MODEL FILE [THREADS...]
"""
import base64
import os
import statistics
import sys
import time

CL100K = (r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"""
          r"""\s*[\r\n]+|\s+(?!\S)|\s+""")
PATTERNS = {
    "gpt2": r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s""",
    "cl100k": r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s""",
    "qwen": CL100K.replace("{1,3}", ""),
    "llama3": CL100K,
}


def documents_of(data):
    documents, begin = [], 0
    while begin < len(data):
        wanted = min(begin + 4096, len(data))
        end = wanted
        if wanted < len(data):
            line = data.find(b"\n", wanted)
            end = len(data) if line < 0 else line + 1
        documents.append(data[begin:end].decode())
        begin = end
    return documents


def run(kind, vocabulary, documents, size, threads):
    os.environ["RAYON_NUM_THREADS"] = str(threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    if kind == "tokenizers":
        from tokenizers import Tokenizer
        tokenizer = Tokenizer.from_file(vocabulary)
        tokenizer.no_truncation()
        tokenizer.no_padding()

        def encode():
            return [one.ids for one in tokenizer.encode_batch_fast(documents, add_special_tokens=False)]
    elif kind == "sentencepiece":
        import sentencepiece
        processor = sentencepiece.SentencePieceProcessor(model_file=vocabulary)

        def encode():
            return processor.encode(documents, num_threads=threads)
    else:
        import tiktoken
        path, family = vocabulary.rsplit(":", 1)
        with open(path, "rb") as file:
            ranks = {base64.b64decode(line.split()[0]): int(line.split()[1]) for line in file.read().splitlines() if line}
        encoding = tiktoken.Encoding(family, pat_str=PATTERNS[family], mergeable_ranks=ranks, special_tokens={})

        def encode():
            return encoding.encode_ordinary_batch(documents, num_threads=threads)
    times, results = [], []
    while sum(times) < 1.0 or len(times) < 3:
        begin = time.perf_counter()
        results = encode()
        times.append(time.perf_counter() - begin)
    total = tokens = 0
    for ids in results:
        tokens += len(ids)
        for one in ids:
            total = (total * 31 + one) % 1000000007
    print(f"{kind:<11} {threads}t  {size / statistics.median(times) / 1e6:7.2f} MB/s  {tokens} tokens  check {total}", flush=True)


def main():
    if len(sys.argv) < 4 or sys.argv[1] not in ("tokenizers", "tiktoken", "sentencepiece"):
        sys.exit(__doc__)
    with open(sys.argv[3], "rb") as file:
        data = file.read()
    for threads in sys.argv[4:] or ["1", "2"]:
        child = os.fork()  # a thread pool keeps its size for the lifetime of its process
        if child == 0:
            run(sys.argv[1], sys.argv[2], documents_of(data), len(data), int(threads))
            os._exit(0)
        if os.waitpid(child, 0)[1] != 0:
            sys.exit(1)


if __name__ == "__main__":
    main()
