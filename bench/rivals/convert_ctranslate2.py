"""Converts an encoder-decoder: `convert_ctranslate2.py MODEL OUT` writes a CTranslate2 folder in f32.

Needs ctranslate2, torch and transformers: the environment of the rival `torch`. The type of arithmetic is chosen when the
folder is loaded.
"""

import sys

from ctranslate2.converters import TransformersConverter

model, out = sys.argv[1:]
TransformersConverter(model).convert(out, quantization=None, force=True)
