"""The model under test and the inputs it is given."""

import copy
import inspect
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

import torch
import transformers
from safetensors import safe_open

IGNORED = -100
KINDS = {
    "ForCausalLM": "causal",
    "LMHeadModel": "causal",
    "ForMaskedLM": "mlm",
    "ForSequenceClassification": "seqcls",
    "ForTokenClassification": "tokcls",
    "ForQuestionAnswering": "qa",
    "ElectraForPreTraining": "disc",
    "ForConditionalGeneration": "seq2seq",
    "MTModel": "seq2seq",
    "Model": "encoder",
}


def fail(message):
    sys.exit(f"error: {message}")


@dataclass
class Options:
    """What to record; the fields are those of the command line."""

    prompts: list = field(default_factory=list)
    lengths: tuple = (14, 11, 6)
    prompt_lengths: tuple = (9, 6, 3)
    max_new_tokens: int = 24
    beams: int = 0
    beam_settings: list = field(default_factory=list)
    train: bool = False
    hidden: str = "all"
    attentions: int = 1
    attention: str | None = None
    seed: int = 0
    float64: bool = True
    weights: str = "link"
    notes: str = ""


class Subject:
    """A model in float32 and in float64, and what its configuration says about inputs."""

    def __init__(self, folder, attention=None, float64=True):
        self.folder = Path(folder)
        if not (self.folder / "config.json").is_file():
            fail(f"{self.folder}: no config.json")
        raw = json.loads((self.folder / "config.json").read_text())
        if not raw.get("architectures"):
            fail(f"{self.folder / 'config.json'}: `architectures` is missing")
        self.architecture = raw["architectures"][0]
        self.kind = next((kind for end, kind in KINDS.items() if self.architecture.endswith(end)), None)
        if self.kind is None or not hasattr(transformers, self.architecture):
            fail(f"architecture {self.architecture} is not known here")
        if attention is None:
            # Eager Falcon adds its ALiBi bias twice in transformers 5; sdpa adds it once, as the original does.
            attention = "sdpa" if raw.get("model_type") == "falcon" and raw.get("alibi") else "eager"
        self.attention = attention
        loader = getattr(transformers, self.architecture)
        self.model = loader.from_pretrained(self.folder, dtype=torch.float32, attn_implementation=attention).eval()
        self.double = copy.deepcopy(self.model).double() if float64 else None
        if float64 and hasattr(self.double.config, "_experts_implementation"):
            self.double.config._experts_implementation = "eager"  # the grouped product has no float64
        self.config = self.model.config
        pad = getattr(self.config, "pad_token_id", None)
        self.pad = pad if pad is not None else 0
        self.takes = set(inspect.signature(self.model.forward).parameters)
        self.stored = stored_types(self.folder)

    def depends_on_batch(self):
        """Dynamic rotary scaling takes the longest row of the batch as the length of all."""
        rope = getattr(self.config, "rope_parameters", None) or {}
        return rope.get("rope_type") == "dynamic"

    def fresh(self, model=None):
        """The model as loaded: dynamic rotary scaling remembers the longest sequence it has seen."""
        rope = getattr(self.config, "rope_parameters", None) or {}
        stateful = rope.get("rope_type") in ("dynamic", "longrope")
        return copy.deepcopy(model or self.model) if stateful else (model or self.model)

    def forward(self, inputs, model=None, **more):
        switches = {"use_cache": False} if "use_cache" in self.takes else {}
        return self.fresh(model)(**inputs, **switches, **more, return_dict=True)


def weight_files(folder):
    return sorted(
        p for pattern in ("*.safetensors", "*.bin") for p in folder.glob(pattern) if p.name != "expected.safetensors"
    )


def stored_types(folder):
    """Name and type of every tensor in the safetensors files (empty for other formats)."""
    types = {}
    for path in weight_files(folder):
        if path.suffix == ".safetensors":
            with safe_open(path, "pt") as file:
                types |= {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
    return types


def random_rows(subject, lengths, seed):
    """Rows of ordinary ids: none of the special ones."""
    generator = torch.Generator().manual_seed(seed)
    config = subject.config
    names = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id", "sep_token_id")
    special = {0, 1, 2} | {subject.pad}
    for name in names:
        value = getattr(config, name, None)
        special |= set(value if isinstance(value, list) else [value])
    allowed = torch.tensor([i for i in range(config.vocab_size) if i not in special])
    return [allowed[torch.randint(len(allowed), (n,), generator=generator)].tolist() for n in lengths]


def text_rows(subject, texts):
    tokenizer = transformers.AutoTokenizer.from_pretrained(subject.folder)
    return [tokenizer(text).input_ids for text in texts]


def padded(rows, pad, left=False):
    """Ids and mask of rows as one rectangle."""
    width = max(map(len, rows))
    if left:
        ids = [[pad] * (width - len(row)) + row for row in rows]
        mask = [[0] * (width - len(row)) + [1] * len(row) for row in rows]
    else:
        ids = [row + [pad] * (width - len(row)) for row in rows]
        mask = [[1] * len(row) + [0] * (width - len(row)) for row in rows]
    return torch.tensor(ids), torch.tensor(mask)


def segments(subject, mask):
    """Token types: the second half of each row is segment 1."""
    places = mask.cumsum(-1) - 1
    return ((places >= mask.sum(-1, keepdim=True) // 2) & (mask == 1)).long()


def make_inputs(subject, options):
    """The recorded inputs: `right.*`, the greedy prompts, and what training needs."""
    generator = torch.Generator().manual_seed(options.seed + 17)
    rows = (
        text_rows(subject, options.prompts) if options.prompts else random_rows(subject, options.lengths, options.seed)
    )
    eos = getattr(subject.config, "eos_token_id", None)
    # The classifier of an encoder-decoder reads at the last end token, so there must be one.
    ends = subject.kind == "seq2seq" or (subject.kind == "seqcls" and subject.config.is_encoder_decoder)
    if ends and not options.prompts and isinstance(eos, int):
        rows = [row[:-1] + [eos] for row in rows]
    made = {}
    made["right.input_ids"], made["right.attention_mask"] = padded(rows, subject.pad)
    if "token_type_ids" in subject.takes and (getattr(subject.config, "type_vocab_size", 0) or 0) > 1:
        segment = segments(subject, made["right.attention_mask"])
        made["right.token_type_ids"] = segment if not options.prompts else torch.zeros_like(segment)
    if subject.kind == "seq2seq":
        targets = random_rows(subject, [max(2, n // 2 + 1) for n in map(len, rows)], options.seed + 1)
        made["train.labels"] = padded(
            [row[:-1] + ([eos] if isinstance(eos, int) else row[-1:]) for row in targets], IGNORED
        )[0]
        made["right.decoder_input_ids"] = decoder_inputs(subject, made["train.labels"])
        made["right.decoder_mask"] = (made["train.labels"] != IGNORED).long()
    elif options.train:
        made |= make_labels(subject, made, generator)
    return made


def decoder_inputs(subject, labels):
    """The labels one place later, as the model's own training makes them."""
    prepare = getattr(subject.model, "prepare_decoder_input_ids_from_labels", None)
    if prepare is not None:
        return prepare(labels=labels.clone())  # some write into what they are given
    filled = labels.masked_fill(labels == IGNORED, subject.pad)
    start = torch.full_like(filled[:, :1], subject.config.decoder_start_token_id)
    return torch.cat([start, filled[:, :-1]], dim=1)


def make_labels(subject, made, generator):
    """Random labels of the kind the head wants."""
    ids, mask = made["right.input_ids"], made["right.attention_mask"]
    count = ids.shape[0]

    def random(high, shape=tuple(ids.shape)):
        return torch.randint(high, shape, generator=generator)

    if subject.kind == "causal":
        drop = (torch.rand(ids.shape, generator=generator) < 0.1) | (mask == 0)
        return {"train.labels": ids.masked_fill(drop, IGNORED)}
    if subject.kind == "mlm":
        drop = (torch.rand(ids.shape, generator=generator) < 0.4) | (mask == 0)
        return {"train.labels": random(subject.config.vocab_size).masked_fill(drop, IGNORED)}
    if subject.kind == "disc":
        return {"train.labels": random(2).masked_fill(mask == 0, 0)}
    if subject.kind == "tokcls":
        return {"train.labels": random(subject.config.num_labels).masked_fill(mask == 0, IGNORED)}
    if subject.kind == "qa":
        return {"train.start_positions": random(3, (count,)), "train.end_positions": random(3, (count,)) + 3}
    if subject.kind == "seqcls":
        labels = subject.config.num_labels
        if subject.config.problem_type == "multi_label_classification":
            return {"train.labels": random(2, (count, labels)).float()}
        if labels == 1:
            return {"train.labels": torch.randn(count, generator=generator)}
        return {"train.labels": random(labels, (count,))}
    return {"train.readout": torch.randn(subject.config.hidden_size, generator=generator)}


def under(prefix, tensors):
    return {name[len(prefix) :]: value for name, value in tensors.items() if name.startswith(prefix)}
