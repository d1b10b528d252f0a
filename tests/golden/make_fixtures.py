"""Makes the fixtures that parity tests compare with: small models, what PyTorch and transformers compute with them.

Run by hand when a fixture must change; the tests read what is committed here. Versions and hashes go to VERSIONS and
SHA256SUMS. Numbers are drawn from NumPy's PCG64, so a run with the same versions gives the same files.

    python make_fixtures.py
"""

import hashlib
import json

import numpy as np
import peft
import safetensors
import tokenizers
import torch
import transformers

import families_published
import families_transformers
import family_adapters
from fixture import HERE


def main():
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    families_transformers.make_all()
    families_published.make_all()
    family_adapters.make_all()

    versions = {m.__name__: m.__version__ for m in (torch, transformers, peft, tokenizers, safetensors, np)}
    (HERE / "VERSIONS").write_text("".join(f"{k} {v}\n" for k, v in versions.items()))
    files = sorted(p for p in HERE.glob("*/**/*") if p.suffix in (".json", ".safetensors"))
    (HERE / "SHA256SUMS").write_text("".join(
        f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.relative_to(HERE)}\n" for p in files))
    print(json.dumps(versions), sum(p.stat().st_size for p in files), "bytes")


if __name__ == "__main__":
    main()
