//! The pages of `attend show`.

use super::super::screen::{Table, bytes, quantity};
use super::{ShowArgs, Shown, tensor_bytes, words};
use attend_kernels::DType;
use attend_model::Mapped;
use attend_nn::spec::{Layer, Stack};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Result, Write};

pub fn write(out: &mut impl Write, args: &ShowArgs, shown: &Shown) -> Result<()> {
    summary(out, shown)?;
    for (_, prefix, stack) in shown.described.spec.stacks() {
        self::stack(out, args, shown, (prefix, stack))?;
    }
    writeln!(out, "\nhead: {}", words::head(&shown.described.spec))?;
    let rest = |name: &str| name.starts_with("head.") || name.starts_with("pooler.");
    tensor_table(out, &shown.described.tensors.iter().filter(|t| rest(&t.ours)).collect::<Vec<_>>(), "")?;
    for notice in &shown.described.notices {
        writeln!(out, "note: {notice}")?;
    }
    Ok(())
}

fn summary(out: &mut impl Write, shown: &Shown) -> Result<()> {
    let described = &shown.described;
    let spec = &described.spec;
    let mut table = Table::new(&["model", &described.checkpoint.path().display().to_string()]);
    let layers: Vec<String> = spec.stacks().iter().map(|(_, _, stack)| stack.layers.len().to_string()).collect();
    let stack = spec.output_stack();
    let context = spec.context.map_or("without limit".into(), |context| format!("{context} tokens"));
    let mut row = |name: &str, value: String| table.row([name.to_owned(), value]);
    row(
        "architecture",
        format!(
            "{} ({}, from a {})",
            described.architecture,
            words::body(&spec.body),
            words::kind(&described.checkpoint)
        ),
    );
    row(
        "size",
        format!(
            "{} layers, width {}, vocabulary {}, context {context}",
            layers.join(" + "),
            stack.width,
            stack.embed.vocab
        ),
    );
    row("parameters", quantity(u64::try_from(described.parameters()).unwrap_or(u64::MAX)));
    let types: Vec<String> = described
        .by_type()
        .iter()
        .map(|(dtype, (count, size))| format!("{dtype} {} ({})", quantity(*count), bytes(*size)))
        .collect();
    row("weights", format!("{}: {}", bytes(described.weight_bytes()), types.join(", ")));
    let computing = &shown.computing;
    let arithmetic: Vec<String> = computing
        .arithmetic
        .iter()
        .map(|a| {
            if a.kept_as == a.file_type {
                format!("{}: {}", a.file_type, a.arithmetic)
            } else {
                format!("{} (kept as {}): {}", a.file_type, a.kept_as, a.arithmetic)
            }
        })
        .collect();
    row(
        "arithmetic",
        format!("{}, {} threads: {}", computing.instruction_set, computing.threads, arithmetic.join("; ")),
    );
    if computing.kv_bytes_per_token > 0 {
        let full =
            computing.kv_bytes_full_context.map_or(String::new(), |all| format!(", {} for a full context", bytes(all)));
        row(
            "cache",
            format!(
                "{}, {} for each token{full}; {} attention",
                computing.kv_type,
                bytes(computing.kv_bytes_per_token),
                computing.attention
            ),
        );
    }
    row(
        "tokenizer",
        match &shown.tokenizer {
            Ok(tokenizer) => {
                format!("{}, {} tokens, ends with {:?}", tokenizer.kind(), tokenizer.vocab_size(), tokenizer.end_ids())
            }
            Err(message) => format!("none ({message})"),
        },
    );
    row(
        "chat template",
        match &shown.template {
            Ok(Some(template)) => template.names().collect::<Vec<_>>().join(", "),
            Ok(None) => "none".into(),
            Err(message) => format!("unusable ({message})"),
        },
    );
    row("generation", generation(shown));
    write!(out, "{table}")
}

/// The files' defaults, each with the file that sets it.
fn generation(shown: &Shown) -> String {
    let set = shown.described.generation.set_fields().into_iter();
    let list: Vec<String> = set.map(|(field, value, file)| format!("{field} {value} ({file})")).collect();
    if list.is_empty() { "no defaults in the files".into() } else { list.join(", ") }
}

/// Layers that are alike but for their weights, and which ones they are.
struct Kind<'a> {
    layer: &'a Layer,
    depths: Vec<usize>,
}

fn kinds(stack: &Stack) -> Vec<Kind<'_>> {
    let mut kinds: Vec<Kind> = Vec::new();
    for (depth, layer) in stack.layers.iter().enumerate() {
        let alike =
            |kind: &&mut Kind| Layer { weights: 0, ..kind.layer.clone() } == Layer { weights: 0, ..layer.clone() };
        match kinds.iter_mut().find(alike) {
            Some(kind) => kind.depths.push(depth),
            None => kinds.push(Kind { layer, depths: vec![depth] }),
        }
    }
    kinds
}

/// `0-4, 6-10, 12`
fn ranges(depths: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for &depth in depths {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == depth => *last = depth,
            _ => runs.push((depth, depth)),
        }
    }
    let run =
        |&(first, last): &(usize, usize)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    runs.iter().map(run).collect::<Vec<_>>().join(", ")
}

fn stack(out: &mut impl Write, args: &ShowArgs, shown: &Shown, (prefix, stack): (&str, &Stack)) -> Result<()> {
    let tensors: Vec<&Mapped> = shown.described.tensors.iter().filter(|t| t.ours.starts_with(prefix)).collect();
    let kinds = kinds(stack);
    let name = if prefix.is_empty() { "" } else { prefix.trim_end_matches('.') };
    writeln!(out, "\n{}layers", if name.is_empty() { String::new() } else { format!("{name} ") })?;
    layer_table(out, (prefix, stack), &kinds, &tensors)?;
    writeln!(out, "\n{prefix}embed: {}", words::embed(stack))?;
    let own = |part: &str| {
        tensors
            .iter()
            .copied()
            .filter(|t| t.ours.strip_prefix(prefix).is_some_and(|n| n.starts_with(part)))
            .collect::<Vec<_>>()
    };
    tensor_table(out, &own("embed."), prefix)?;
    if let Some(bias) = &stack.relative_bias {
        writeln!(out, "{prefix}relative_bias: {}", words::relative_bias(bias))?;
        tensor_table(out, &own("relative_bias."), prefix)?;
    }
    for kind in &kinds {
        layer(out, args, (prefix, stack), kind, &tensors)?;
    }
    if let Some(norm) = &stack.final_norm {
        writeln!(out, "\n{prefix}final_norm: {}", words::norm(norm))?;
        tensor_table(out, &own("final_norm."), prefix)?;
    }
    if let Some(width) = stack.narrowed {
        writeln!(out, "\n{prefix}narrowing: from {} to {width}", stack.width)?;
        tensor_table(out, &own("narrowing."), prefix)?;
    }
    Ok(())
}

/// One line for each kind of layer.
fn layer_table(
    out: &mut impl Write,
    (prefix, stack): (&str, &Stack),
    kinds: &[Kind<'_>],
    tensors: &[&Mapped],
) -> Result<()> {
    let mut table =
        Table::new(&["layers", "attention", "positions", "mask", "cross", "ffn", "norm", "parameters", "bytes"]);
    for kind in kinds {
        let layer = kind.layer;
        let sets: BTreeSet<usize> =
            kind.depths.iter().filter_map(|&d| stack.layers.get(d)).map(|l| l.weights).collect();
        let (count, size) =
            sets.iter().map(|set| totals(&of_layer(tensors, prefix, *set))).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        table.row([
            ranges(&kind.depths),
            words::heads(&layer.attention),
            words::position_name(&layer.attention.position).into(),
            words::mask(layer.attention.mask),
            layer.cross.as_ref().map_or("-".into(), words::heads),
            words::ffn_name(&layer.ffn),
            words::norm(&layer.norm),
            quantity(count),
            bytes(size),
        ]);
    }
    write!(out, "{table}")
}

fn of_layer<'t>(tensors: &[&'t Mapped], prefix: &str, set: usize) -> Vec<&'t Mapped> {
    let name = format!("{prefix}layers.{set}.");
    tensors.iter().copied().filter(|tensor| tensor.ours.starts_with(&name)).collect()
}

fn totals(tensors: &[&Mapped]) -> (u64, u64) {
    tensors.iter().fold((0, 0), |(count, size), tensor| {
        (count + tensor.elements() as u64, size + tensor_bytes(tensor.dtype, tensor.elements()))
    })
}

fn layer(
    out: &mut impl Write,
    args: &ShowArgs,
    (prefix, stack): (&str, &Stack),
    kind: &Kind<'_>,
    tensors: &[&Mapped],
) -> Result<()> {
    let layer = kind.layer;
    writeln!(out, "\n{prefix}layers {} ({})", ranges(&kind.depths), kind.depths.len())?;
    writeln!(out, "  {}", words::wiring(layer))?;
    writeln!(out, "  n: {}", words::norm(&layer.norm))?;
    writeln!(out, "  A: {}", words::attention(&layer.attention))?;
    writeln!(
        out,
        "     positions: {}; mask: {}",
        words::position(&layer.attention.position),
        words::mask(layer.attention.mask)
    )?;
    if let Some(cross) = &layer.cross {
        writeln!(out, "  C: over the encoder's output, {}", words::attention(cross))?;
        writeln!(out, "     positions: {}; mask: {}", words::position(&cross.position), words::mask(cross.mask))?;
    }
    writeln!(out, "  F: {}", words::ffn(&layer.ffn))?;
    let sets: BTreeSet<usize> =
        kind.depths.iter().filter_map(|&depth| stack.layers.get(depth)).map(|l| l.weights).collect();
    if sets.len() < kind.depths.len() {
        writeln!(out, "  {} layers share {} sets of weights", kind.depths.len(), sets.len())?;
    }
    if args.tensors || sets.len() == 1 {
        for set in sets {
            tensor_table(out, &of_layer(tensors, prefix, set), prefix)?;
        }
        return Ok(());
    }
    tensors_alike(out, prefix, &sets, tensors)
}

fn tensor_table(out: &mut impl Write, tensors: &[&Mapped], prefix: &str) -> Result<()> {
    if tensors.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(&["  tensor", "shape", "parameters", "bytes", "type", "in the file"]);
    for tensor in tensors {
        let name = tensor.ours.strip_prefix(prefix).unwrap_or(&tensor.ours);
        let elements = tensor.elements();
        table.row([
            format!("  {name}"),
            format!("{:?}", tensor.shape),
            quantity(elements as u64),
            bytes(tensor_bytes(tensor.dtype, elements)),
            tensor.dtype.to_string(),
            tensor.theirs.clone(),
        ]);
    }
    write!(out, "{table}")
}

/// One line for what every layer of a kind has, with the types and bytes of all.
fn tensors_alike(out: &mut impl Write, prefix: &str, sets: &BTreeSet<usize>, tensors: &[&Mapped]) -> Result<()> {
    let mut order: Vec<&str> = Vec::new();
    let mut groups: BTreeMap<&str, Vec<&Mapped>> = BTreeMap::new();
    for set in sets {
        let head = format!("{prefix}layers.{set}.").len();
        for tensor in of_layer(tensors, prefix, *set) {
            let name = tensor.ours.get(head..).unwrap_or(&tensor.ours);
            let group = groups.entry(name).or_default();
            if group.is_empty() {
                order.push(name);
            }
            group.push(tensor);
        }
    }
    let mut table = Table::new(&["  tensor", "shape", "parameters", "bytes", "type", "in the file (first layer)"]);
    for name in order {
        let Some(group) = groups.get(name) else { continue };
        let Some(first) = group.first() else { continue };
        let types: BTreeSet<DType> = group.iter().map(|tensor| tensor.dtype).collect();
        let (count, size) = totals(group);
        table.row([
            format!("  {name}"),
            format!("{} x {:?}", group.len(), first.shape),
            quantity(count),
            bytes(size),
            types.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
            first.theirs.clone(),
        ]);
    }
    write!(out, "{table}")
}

#[cfg(test)]
mod tests {
    use super::ranges;

    #[test]
    fn runs_of_layers() {
        assert_eq!(ranges(&[0, 1, 2, 4, 6, 7]), "0-2, 4, 6-7");
        assert_eq!(ranges(&[5]), "5");
    }
}
