"""What is recorded of a forward pass, and of training."""

import torch

from .subject import Options, fail, padded, under


def masked(value, mask):
    """Zero at padding: `value` is [B, T, ...], or scores or probabilities [B, H, T, S]."""
    mask = mask.to(value.dtype)
    return value * (mask[:, None, :, None] if value.dim() == 4 else mask.reshape(*mask.shape, *[1] * (value.dim() - 2)))


def forward_right(subject, inputs, options, model=None):
    """Everything recorded of the right-padded pass."""
    names = ("input_ids", "attention_mask", "token_type_ids")
    given = {name: inputs[f"right.{name}"] for name in names if f"right.{name}" in inputs}
    mask = given["attention_mask"]
    out_mask = mask
    if subject.kind == "seq2seq":
        given["decoder_input_ids"] = inputs["right.decoder_input_ids"]
        out_mask = inputs["right.decoder_mask"]
    more = {"output_hidden_states": options.hidden != "none"}
    if subject.attention == "eager" and options.attentions:
        more["output_attentions"] = True
    out = subject.forward(given, model, **more)
    made = {}
    for name in ("logits", "start_logits", "end_logits", "last_hidden_state", "pooler_output"):
        value = out.get(name)
        if value is not None:
            per_token = value.dim() >= 2 and value.shape[:2] == out_mask.shape and (subject.kind != "seqcls")
            made[f"right.{name}"] = masked(value, out_mask) if per_token and name != "pooler_output" else value
    if out.get("encoder_last_hidden_state") is not None:
        made["right.encoder_last_hidden_state"] = masked(out.encoder_last_hidden_state, mask)
    for name, its_mask in (
        ("hidden_states", mask),
        ("encoder_hidden_states", mask),
        ("decoder_hidden_states", out_mask),
    ):
        states = out.get(name) or ()
        for index, value in enumerate(states):
            if options.hidden == "all" or index in (0, len(states) - 1):
                made[f"right.{name}.{index}"] = masked(value, its_mask)
    if more.get("output_attentions"):
        rows = (
            ("attentions", mask),
            ("encoder_attentions", mask),
            ("decoder_attentions", out_mask),
            ("cross_attentions", out_mask),
        )
        for name, its_mask in rows:
            for index, value in enumerate((out.get(name) or ())[: options.attentions]):
                if value is not None and value.dim() == 4 and value.shape[2] == its_mask.shape[1]:
                    made[f"right.{name}.{index}"] = masked(value, its_mask)
    return made


def headline(made):
    """The output that tolerances are scaled by."""
    for name in ("right.logits", "right.start_logits", "right.last_hidden_state"):
        if name in made:
            return made[name]
    return fail("the model returned no logits and no last_hidden_state")


def noise_of(subject, inputs):
    """Largest difference between float32 and float64, each row alone and unpadded.

    Unpadded, because float64 padding rows that may attend to nothing become NaN in the reference.
    """
    if subject.double is None:
        return 0.0
    worst = 0.0
    for row in range(inputs["right.input_ids"].shape[0]):
        alone = {name: value[row : row + 1] for name, value in inputs.items() if name.startswith("right.")}
        length = int(alone["right.attention_mask"].sum())
        for name in ("right.input_ids", "right.attention_mask", "right.token_type_ids"):
            if name in alone:
                alone[name] = alone[name][:, :length]
        plain = Options(hidden="none", attentions=0)
        results = [headline(forward_right(subject, alone, plain, model)).double() for model in (None, subject.double)]
        worst = max(worst, (results[0] - results[1]).abs().max().item())
    return worst


def forward_left(subject, inputs):
    """The same rows padded on the left: what batched generation computes."""
    ids, mask = inputs["right.input_ids"], inputs["right.attention_mask"]
    lengths = mask.sum(-1).tolist()

    def shifted(value, fill):
        rows = [row[:n] for row, n in zip(value.tolist(), lengths)]
        return padded(rows, fill, left=True)[0]

    given = {"input_ids": shifted(ids, subject.pad), "attention_mask": shifted(mask, 0)}
    if "right.token_type_ids" in inputs:
        given["token_type_ids"] = shifted(inputs["right.token_type_ids"], 0)
    made = {f"left.{name}": value for name, value in given.items()}
    if subject.kind == "encoder":
        made["left.last_hidden_state"] = masked(subject.forward(given).last_hidden_state, given["attention_mask"])
        return made
    if "position_ids" in subject.takes:
        given["position_ids"] = (given["attention_mask"].cumsum(-1) - 1).clamp(min=0)
        made["left.position_ids"] = given["position_ids"]
    made["left.last_logits"] = subject.forward(given).logits[:, -1]
    return made


def pooled(hidden, mask):
    """Sentence embeddings in the usual ways."""
    weight = mask[:, :, None].to(hidden.dtype)
    mean = (hidden * weight).sum(1) / weight.sum(1)
    return {
        "pooled.cls": hidden[:, 0],
        "pooled.mean": mean,
        "pooled.mean_l2": torch.nn.functional.normalize(mean, dim=-1),
        "pooled.max": hidden.masked_fill(weight == 0, float("-inf")).amax(1),
    }


def file_name(name, subject):
    """A parameter's name as the checkpoint spells it, or None."""
    prefix = subject.model.base_model_prefix + "."
    old = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
    guesses = [name, name.removeprefix(prefix), prefix + name, old]
    if not subject.stored:
        return name
    return next((guess for guess in guesses if guess in subject.stored), None)


def train(subject, inputs):
    """Loss and the gradient of every parameter under its name in the file."""
    model = subject.fresh()
    model.zero_grad(set_to_none=True)
    names = ("input_ids", "attention_mask", "token_type_ids")
    given = {name: inputs[f"right.{name}"] for name in names if f"right.{name}" in inputs}
    labels = {k: v for k, v in under("train.", inputs).items() if k in ("labels", "start_positions", "end_positions")}
    with torch.enable_grad():
        if subject.kind == "encoder":
            hidden = model(**given, return_dict=True).last_hidden_state
            real = given["attention_mask"] == 1
            loss = (hidden[real].tanh() @ inputs["train.readout"]).sum() / real.sum()
        else:
            switches = {"use_cache": False} if "use_cache" in subject.takes else {}
            if subject.kind == "seq2seq":
                switches["decoder_input_ids"] = inputs["right.decoder_input_ids"]
            loss = model(**given, **labels, **switches, return_dict=True).loss
        loss.backward()
    grads, left_out = {}, []
    for name, parameter in model.named_parameters():
        stored = file_name(name, subject)
        if stored is None:
            left_out.append(name)
        elif parameter.grad is not None:
            grads[stored] = parameter.grad.clone()
    model.zero_grad(set_to_none=True)
    return loss.detach(), grads, left_out


def record_train(subject, inputs):
    loss, grads, left_out = train(subject, inputs)
    made = {name: value for name, value in inputs.items() if name.startswith("train.")} | {"train.loss": loss}
    small = {name: grad for name, grad in grads.items() if grad.numel() <= 4096}
    made |= {f"train.grad.{name}": grad for name, grad in small.items()}
    norms = {name: grad.double().norm().item() for name, grad in sorted(grads.items())}
    facts = {"grad_norms": norms, "grad_norm_total": sum(value**2 for value in norms.values()) ** 0.5}
    if subject.kind == "encoder":
        facts["train_loss_is"] = "sum over real tokens of tanh(last_hidden_state)·readout, divided by their number"
    if left_out:
        facts["grads_left_out"] = left_out
    return made, facts
