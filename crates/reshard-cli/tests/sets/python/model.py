"""Small models with the names and the cuts of real ones, written and compared by safetensors and NumPy alone.

model.py write FOLDER             whole.safetensors, tp2/ and the wanted tp4; and the same of a model with fused gates, fused2/ and fused4
model.py compare FOLDER/A FOLDER/B...   fails unless files of the same ranks, or whole files, hold the same tensors
"""

import pathlib
import re
import sys

import numpy as np
from safetensors.numpy import load_file, save_file

HIDDEN, HEAD, VOCABULARY, LAYERS = 32, 4, 96, 3
# That of a model of 7 billion parameters: the blocks of fused gates are named by it.
INTERMEDIATE = 11008


def whole(kv_heads):
    generator = np.random.default_rng(kv_heads)

    def tensor(*shape):
        return generator.integers(0, 2**16, shape, dtype=np.uint16).view(np.float16)

    tensors = {
        "model.embed_tokens.weight": tensor(VOCABULARY, HIDDEN),
        "lm_head.weight": tensor(VOCABULARY, HIDDEN),
        "model.norm.weight": tensor(HIDDEN),
    }
    for layer in range(LAYERS):
        for name, shape in {
            "self_attn.q_proj": (HIDDEN, HIDDEN),
            "self_attn.k_proj": (kv_heads * HEAD, HIDDEN),
            "self_attn.v_proj": (kv_heads * HEAD, HIDDEN),
            "self_attn.o_proj": (HIDDEN, HIDDEN),
            "mlp.gate_proj": (INTERMEDIATE, HIDDEN),
            "mlp.up_proj": (INTERMEDIATE, HIDDEN),
            "mlp.down_proj": (HIDDEN, INTERMEDIATE),
            "input_layernorm": (HIDDEN,),
            "post_attention_layernorm": (HIDDEN,),
        }.items():
            tensors[f"model.layers.{layer}.{name}.weight"] = tensor(*shape)
    return tensors


def part(tensors, rank, ranks, kv_heads):
    """What a rank of tensor parallelism has, as such programs cut it."""
    mine = {}
    for name, tensor in tensors.items():
        parts = ranks
        at = rank
        if re.search(r"\.[kv]_proj\.", name) and kv_heads < ranks:
            parts, at = kv_heads, rank * kv_heads // ranks
        if tensor.ndim == 1:
            mine[name] = tensor
        elif re.search(r"\.(o|down)_proj\.", name):
            mine[name] = np.ascontiguousarray(np.split(tensor, parts, axis=1)[at])
        else:
            mine[name] = np.ascontiguousarray(np.split(tensor, parts, axis=0)[at])
    return mine


def fused(mine):
    """A rank's rows of the gate and of the up projection as one tensor, the gate's first."""
    for name in [name for name in mine if ".gate_proj." in name]:
        up = mine.pop(name.replace("gate_proj", "up_proj"))
        mine[name.replace("gate_proj", "gate_up_proj")] = np.concatenate([mine.pop(name), up])
    return mine


def write(folder):
    model, grouped = whole(4), whole(2)
    save_file(model, folder / "whole.safetensors")
    save_file(fused(dict(grouped)), folder / "fused-whole.safetensors")
    for ranks in (2, 4):
        for name in (f"tp{ranks}", f"fused{ranks}"):
            wanted = folder / (name if ranks == 2 else f"wanted-{name}")
            wanted.mkdir()
            for rank in range(ranks):
                one = part(model, rank, ranks, 4) if name.startswith("tp") else fused(part(grouped, rank, ranks, 2))
                save_file(one, wanted / f"model-{rank}.safetensors")


def compare(one, other):
    files = [[path] if path.is_file() else sorted(path.glob("*.safetensors")) for path in (one, other)]
    assert len(files[0]) == len(files[1]) > 0, f"{one} has {len(files[0])} files and {other} {len(files[1])}"
    compared = 0
    for left, right in zip(*files):
        left, right = load_file(left), load_file(right)
        assert left.keys() == right.keys(), sorted(left.keys() ^ right.keys())
        for name, tensor in left.items():
            # As bits: random ones are no numbers, too.
            bits = [array.view(np.uint16) for array in (tensor, right[name])]
            assert bits[0].shape == bits[1].shape, f"{name} is {bits[0].shape} and {bits[1].shape}"
            wrong = int((bits[0] != bits[1]).sum())
            assert wrong == 0, f"{wrong} elements of {name} differ in {one} and {other}"
            compared += bits[0].size
    print(compared)


if __name__ == "__main__":
    paths = [pathlib.Path(path) for path in sys.argv[2:]]
    {"write": write, "compare": compare}[sys.argv[1]](*paths)
