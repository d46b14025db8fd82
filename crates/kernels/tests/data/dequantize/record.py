"""Records what the `gguf` package's numpy code makes of random blocks (pip install gguf ml_dtypes; seed 1).

For each type: NAME.blocks holds whole blocks, NAME.f32 the values they stand for (little endian). Scales are sane
f16 numbers of either sign where the type allows it; everything else is random bytes. Run in this folder.
"""
import numpy as np
import gguf
from gguf import GGMLQuantizationType as T, GGML_QUANT_SIZES as SIZES
import ml_dtypes

rng = np.random.default_rng(1)
# Byte offsets of f16 scales in a block.
SCALES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": [],
}
for name, offsets in SCALES.items():
    length, size = SIZES[T[name]]
    count = 3 if length == 256 else 12
    blocks = rng.integers(0, 256, (count, size), dtype=np.uint8)
    for offset in offsets:
        scale = (rng.standard_normal(count) * 0.02).astype(np.float16)
        blocks[:, offset : offset + 2] = scale[:, None].view(np.uint8)
    if name == "MXFP4":
        blocks[:, 0] = [0, 1, 2, 3, 100, 120, 127, 130, 200, 253, 254, 126]
    values = gguf.dequantize(blocks.reshape(-1), T[name]).astype("<f4")
    blocks.tofile(f"{name.lower()}.blocks")
    values.tofile(f"{name.lower()}.f32")
for name, kind in {"f8_e4m3": ml_dtypes.float8_e4m3fn, "f8_e5m2": ml_dtypes.float8_e5m2}.items():
    codes = np.arange(256, dtype=np.uint8)
    codes.tofile(f"{name}.blocks")
    codes.view(kind).astype("<f4").tofile(f"{name}.f32")
