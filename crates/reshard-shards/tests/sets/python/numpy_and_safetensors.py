"""NumPy and safetensors beside reshard: one writes, the other reads. Run by main.rs; the standard library, NumPy and safetensors are all it needs.

    write-npy FOLDER          .npy files of all types, orders, versions and some shapes; prints what they are, one JSON object in a line
    write-shards FOLDER SPEC  the shards of sets: an array that is known, dealt out
    check-sets FOLDER SPEC    the shards of sets that reshard made or converted, every element
    write-tensors FOLDER      safetensors files; prints what is in them
    check-tensors FOLDER SPEC safetensors files that reshard's header begins
    write-model FOLDER SPEC   the files of a model that is dealt out to ranks, tensor by tensor
    check-model FOLDER SPEC   the files of a model that reshard converted, every element
"""

import itertools
import json
import os
import sys

import numpy
import safetensors
from safetensors.numpy import load_file, save_file

# reshard's names, NumPy's, and those that safetensors takes and gives.
TYPES = [
    ("bool", "|b1", "bool", "BOOL"),
    ("u8", "|u1", "uint8", "U8"),
    ("i8", "|i1", "int8", "I8"),
    ("u16", "<u2", "uint16", "U16"),
    ("i16", "<i2", "int16", "I16"),
    ("f16", "<f2", "float16", "F16"),
    ("bf16", None, "bfloat16", "BF16"),
    ("f8_e4m3", None, "float8_e4m3fn", "F8_E4M3"),
    ("f8_e5m2", None, "float8_e5m2", "F8_E5M2"),
    ("u32", "<u4", "uint32", "U32"),
    ("i32", "<i4", "int32", "I32"),
    ("u64", "<u8", "uint64", "U64"),
    ("i64", "<i8", "int64", "I64"),
    ("f32", "<f4", "float32", "F32"),
    ("f64", "<f8", "float64", "F64"),
    ("c64", "<c8", "complex64", "C64"),
    ("c128", "<c16", None, None),
    ("bytes(3)", "|V3", None, None),
    ("bytes(24)", "|V24", None, None),
]
SHAPES = [
    (), (1,), (5,), (0,), (3, 4), (1, 7), (7, 1), (0, 4), (4, 0), (2, 3, 4), (2, 1, 3), (3, 0, 2),
    (2, 3, 2, 2), (1, 2, 2, 3, 2), (2, 0, 3, 1, 2),
]
SIZES = {"bool": 1, "u8": 1, "i8": 1, "f8_e4m3": 1, "f8_e5m2": 1, "u16": 2, "i16": 2, "f16": 2, "bf16": 2, "u32": 4, "i32": 4, "f32": 4}


def pattern(length, most=251):
    return bytes((7 * at + 13) % most for at in range(length))


def count(shape):
    elements = 1
    for length in shape:
        elements *= length
    return elements


def write_npy(folder):
    for number, ((name, descr, _, _), shape, order, version) in enumerate(
        itertools.product(TYPES, SHAPES, "CF", [(1, 0), (2, 0), (3, 0)])
    ):
        if descr is None:
            continue
        dtype = numpy.dtype(descr)
        data = pattern(count(shape) * dtype.itemsize, 2 if name == "bool" else 251)
        array = numpy.frombuffer(data, dtype).reshape(shape, order=order)
        file = f"{number}.npy"
        with open(os.path.join(folder, file), "wb") as into:
            numpy.lib.format.write_array(into, array, version=version, allow_pickle=False)
        fortran = array.flags.f_contiguous and not array.flags.c_contiguous
        print(json.dumps({"file": file, "type": name, "shape": shape, "fortran": fortran, "version": version[0]}))


def known(kind, shape, seed):
    """The elements of `reshard make`, by its documented function: a number along the last index first, mixed by splitmix64."""
    with numpy.errstate(over="ignore"):
        number = numpy.arange(count(shape), dtype=numpy.uint64)
        state = numpy.uint64(seed) + number * numpy.uint64(0x9E3779B97F4A7C15) + numpy.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        state = state ^ (state >> numpy.uint64(31))
    if kind == "f64":
        state = (state >> numpy.uint64(11)).astype(numpy.float64) / 2.0**53
    return state.astype({"f64": "<f8", "u64": "<u8", "i16": "<i2", "u8": "|u1"}[kind]).reshape(shape)


def shards(spec):
    """Name and indices of each rank's part: blocks are dealt out in turn along each dimension."""
    coords = itertools.product(*map(range, spec["grid"]))
    for name, at in zip(spec["names"], coords):
        owned = [
            [index for index in range(length) if index // block % processes == mine]
            for length, block, processes, mine in zip(spec["shape"], spec["block"], spec["grid"], at)
        ]
        yield name, numpy.ix_(*(numpy.array(indices, dtype=int) for indices in owned))


def write_shards(folder, spec):
    for one in spec:
        whole = known(one["type"], one["shape"], one["seed"])
        os.makedirs(os.path.join(folder, one["set"]))
        for name, indices in shards(one):
            part = numpy.array(whole[indices], order=one["order"])
            with open(os.path.join(folder, one["set"], name), "wb") as into:
                numpy.lib.format.write_array(into, part, version=tuple(one["version"]), allow_pickle=False)


def check_sets(folder, spec):
    for one in spec:
        whole = known(one["type"], one["made"], one["seed"])
        if one["transposed"]:
            whole = whole.T
        assert list(whole.shape) == one["shape"], one
        for name, indices in shards(one):
            part = numpy.load(os.path.join(folder, one["set"], name), allow_pickle=False)
            expected = whole[indices]
            assert part.dtype == expected.dtype, (one, part.dtype)
            flag = part.flags.f_contiguous if one["order"] == "F" else part.flags.c_contiguous
            assert flag and part.shape == expected.shape, (one, part.shape, expected.shape)
            assert part.tobytes() == expected.tobytes(), (one, name)
            mapped = numpy.load(os.path.join(folder, one["set"], name), mmap_mode="r") if part.size else part
            assert mapped.tobytes() == part.tobytes(), (one, name)
    print(len(spec))


def tensors():
    for number, ((name, _, dtype, theirs), shape) in enumerate(itertools.product(TYPES, SHAPES)):
        if dtype is not None:
            length = count(shape) * SIZES.get(name, 8)
            data = pattern(length, 2 if name == "bool" else 251)
            yield f"t{number} \"é\n{name}", name, shape, dtype, theirs, data


def tensor_of(dtype, shape, data):
    """What safetensors takes: bytes up to version 0.7, then an address, which `data` keeps alive."""
    if not hasattr(safetensors, "TensorSpec"):
        return {"dtype": dtype, "shape": list(shape), "data": data}
    address = numpy.frombuffer(data, numpy.uint8).ctypes.data
    return safetensors.TensorSpec(dtype=dtype, shape=shape, data_ptr=address, data_len=len(data))


def write_tensors(folder):
    every = list(tensors())
    files = [("all", every), ("none", []), *((f"one{at}", [every[at]]) for at in range(0, len(every), 37))]
    for file, chosen in files:
        content = {key: tensor_of(dtype, shape, data) for key, _, shape, dtype, _, data in chosen}
        metadata = {"by": file, "ä": "\"\\\n"} if chosen else None
        safetensors.serialize_file(content, os.path.join(folder, file), metadata)
        listed = [{"key": key, "type": name, "shape": shape} for key, name, shape, _, _, _ in chosen]
        print(json.dumps({"file": file, "metadata": metadata or {}, "tensors": listed}))


def check_tensors(folder, spec):
    names = {name: theirs for name, _, _, theirs in TYPES}
    for one in spec:
        with open(os.path.join(folder, one["file"]), "rb") as file:
            content = file.read()
        found = dict(safetensors.deserialize(content))
        assert set(found) == {tensor["key"] for tensor in one["tensors"]}, one["file"]
        for tensor in one["tensors"]:
            it = found[tensor["key"]]
            assert it["dtype"] == names[tensor["type"]] and it["shape"] == tensor["shape"], (tensor, it["dtype"])
            most = 2 if tensor["type"] == "bool" else 251
            assert bytes(it["data"]) == pattern(count(tensor["shape"]) * SIZES.get(tensor["type"], 8), most), tensor
        with safetensors.safe_open(os.path.join(folder, one["file"]), framework="np") as opened:
            assert (opened.metadata() or {}) == one["metadata"], one["file"]
    print(len(spec))


def parts(one):
    """Of each rank's file: its tensors. Dimension `split` is cut into equal blocks; without it, every rank has a copy."""
    for rank in range(one["ranks"]):
        file = {}
        for number, tensor in enumerate(one["tensors"]):
            dtype = numpy.dtype(tensor["dtype"])
            data = pattern((count(tensor["shape"]) + number) * dtype.itemsize)[number * dtype.itemsize:]
            whole = numpy.frombuffer(data, dtype).reshape(tensor["shape"])
            if tensor["split"] is None:
                file[tensor["key"]] = whole
            else:
                file[tensor["key"]] = numpy.ascontiguousarray(numpy.split(whole, one["ranks"], tensor["split"])[rank])
        yield rank, file


def write_model(folder, spec):
    for rank, file in parts(spec):
        save_file(file, os.path.join(folder, f"tp{rank}.safetensors"), {"format": "np", "rank": str(rank)})


def check_model(folder, spec):
    for rank, file in parts(spec):
        path = os.path.join(folder, spec["set"], f"rank_{rank:04}.safetensors")
        found = load_file(path)
        assert set(found) == set(file), path
        for key, part in file.items():
            assert found[key].dtype == part.dtype and found[key].shape == part.shape, (path, key)
            assert found[key].tobytes() == part.tobytes(), (path, key)
        with safetensors.safe_open(path, framework="np") as opened:
            assert opened.metadata() == {"format": "np"}, path
    print(spec["ranks"])


def main():
    command, folder = sys.argv[1:3]
    rest = []
    if len(sys.argv) > 3:
        with open(sys.argv[3], encoding="utf-8") as file:
            rest = [json.load(file)]
    {
        "write-npy": write_npy,
        "write-shards": write_shards,
        "check-sets": check_sets,
        "write-tensors": write_tensors,
        "check-tensors": check_tensors,
        "write-model": write_model,
        "check-model": check_model,
    }[command](folder, *rest)


main()
