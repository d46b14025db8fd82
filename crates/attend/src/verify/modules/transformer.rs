//! The 2017 Transformer as a description: the reference's own class with its weights, forward and backward.
//!
//! The class takes vectors and not tokens, so the vectors are the rows of the token tables here, each read once; their
//! gradients are the tables'.

use super::super::compare::Comparison;
use super::Module;
use anyhow::{Context, Result, bail};
use attend_kernels::Matrix;
use attend_nn::spec::*;
use attend_nn::{Batch, Encoded, Gradients, Model, RunOptions, Sequence, Tape, WeightSource};
use serde_json::Value;

/// Gradients agree relatively to this.
const GRADIENT: f64 = 1e-3;
/// ... or in all of a tensor to this.
const FLOOR: f64 = 1e-6;

pub fn transformer(module: &Module, comparison: &mut Comparison) -> Result<()> {
    let runs = module.setting("/runs")?.as_object().context("runs is not an object")?;
    for (name, settings) in runs {
        Run { module, name, settings }.check(comparison)?;
    }
    Ok(())
}

struct Run<'m> {
    module: &'m Module,
    name: &'m str,
    settings: &'m Value,
}

impl Run<'_> {
    fn check(&self, comparison: &mut Comparison) -> Result<()> {
        let spec = self.spec()?;
        let model = Model::assemble(spec, &mut Weights { run: self })?;
        let (sources, targets) = (self.rows("src")?, self.rows("tgt")?);
        let options = RunOptions::default();
        let mut tape = Tape::new();
        let encode = || Batch::of(&sources);
        let hidden = model.forward(StackKind::Encoder, &mut encode(), &options, &mut tape)?;
        self.compare_rows("memory", "src", &sources, &hidden, comparison)?;
        let decode = || Batch {
            sequences: targets.iter().map(|ids| Sequence::new(ids)).collect(),
            encoded: Some(Encoded { hidden: &hidden, lengths: sources.iter().map(Vec::len).collect() }),
        };
        let out = model.forward(StackKind::Decoder, &mut decode(), &options, &mut tape)?;
        self.compare_rows("out", "tgt", &targets, &out, comparison)?;
        let mut grads = Gradients::all();
        let dout = self.pick("grad_out", &targets)?;
        let dhidden = model.backward(StackKind::Decoder, &decode(), &tape, &dout, &mut grads)?;
        model.backward(StackKind::Encoder, &encode(), &tape, &dhidden, &mut grads)?;
        self.compare_gradients(&grads, comparison)
    }

    fn tensor(&self, name: &str) -> String {
        format!("{}.{name}", self.name)
    }

    fn count(&self, field: &str) -> Result<usize> {
        let value = self.settings.pointer(field).and_then(Value::as_u64);
        Ok(usize::try_from(value.with_context(|| format!("{}: no {field}", self.name))?)?)
    }

    /// The sequences of a side, as the numbers of their rows in the side's table, without padding.
    fn rows(&self, side: &str) -> Result<Vec<Vec<u32>>> {
        let mask = self.module.floats(&self.tensor(&format!("{side}_key_padding_mask")))?;
        let [rows, columns] = mask.shape[..] else { bail!("a mask has two dimensions") };
        let real = |row: usize| {
            (row * columns..(row + 1) * columns).filter(|at| mask.values[*at] == 0.0).map(|at| at as u32).collect()
        };
        Ok((0..rows).map(real).collect())
    }

    /// The vectors of `name` at the rows of a side's sequences.
    fn pick(&self, name: &str, rows: &[Vec<u32>]) -> Result<Vec<f32>> {
        let tensor = self.module.floats(&self.tensor(name))?;
        let width = self.count("/d_model")?;
        let at = |row: &u32| &tensor.values[*row as usize * width..(*row as usize + 1) * width];
        Ok(rows.iter().flatten().flat_map(at).copied().collect())
    }

    fn compare_rows(
        &self,
        name: &str,
        side: &str,
        rows: &[Vec<u32>],
        found: &[f32],
        comparison: &mut Comparison,
    ) -> Result<()> {
        let place = format!("{} ({side})", self.tensor(name));
        comparison.values(&place, found, &self.pick(name, rows)?, self.module.tolerance);
        Ok(())
    }

    /// The class adds a norm behind each stack, whichever way its layers are wired.
    fn spec(&self) -> Result<ModelSpec> {
        let (width, heads) = (self.count("/d_model")?, self.count("/nhead")?);
        let eps = self.settings.pointer("/layer_norm_eps").and_then(Value::as_f64).unwrap_or(1e-5) as f32;
        let norm = Norm::Layer { eps, bias: true };
        let before = self.settings.pointer("/norm_first").and_then(Value::as_bool).unwrap_or(false);
        let activation = match self.settings.pointer("/activation").and_then(Value::as_str) {
            Some("relu") => Activation::Relu,
            Some("gelu") => Activation::Gelu,
            other => bail!("{}: activation {other:?} is not known", self.name),
        };
        let branch = |mask| Attention {
            qkv_bias: QkvBias::all(true),
            out_bias: true,
            mask,
            ..Attention::plain(heads, heads, width / heads)
        };
        let layer = |weights, mask, cross| Layer {
            wiring: if before { Wiring::PreNorm } else { Wiring::PostNorm },
            norm,
            attention: branch(mask),
            cross,
            ffn: Ffn::Mlp { hidden: self.count("/ff").unwrap_or(0), activation, bias: true },
            branch_scale: 1.0,
            weights,
        };
        let stack = |side: &str, layers: Vec<Layer>| -> Result<Stack> {
            let vocab = self.module.floats(&self.tensor(side))?.values.len() / width;
            Ok(Stack::plain(width, Embed::plain(vocab, width), layers, Some(norm)))
        };
        let encoder = (0..self.count("/layers/0")?).map(|i| layer(i, Mask::Full, None)).collect();
        let decoder = (0..self.count("/layers/1")?).map(|i| layer(i, Mask::Causal, Some(branch(Mask::Full)))).collect();
        let body = Body::EncoderDecoder { encoder: stack("src", encoder)?, decoder: stack("tgt", decoder)? };
        Ok(ModelSpec { body, pooler: None, head: Head::None, context: None })
    }

    /// Every gradient that the file holds, and that of the vectors.
    fn compare_gradients(&self, grads: &Gradients, comparison: &mut Comparison) -> Result<()> {
        for (side, ours) in [("src", "encoder.embed.tokens.weight"), ("tgt", "decoder.embed.tokens.weight")] {
            let name = self.tensor(&format!("grad_{side}"));
            let found = grads.values().get(ours).map_or(&[][..], Vec::as_slice);
            comparison.relative_l2(&name, found, &self.module.floats(&name)?.values, GRADIENT, FLOOR);
        }
        let prefix = self.tensor("grad.");
        for name in self.module.names().into_iter().filter(|name| name.starts_with(&prefix)) {
            let mut found = Vec::new();
            for ours in ours(&name[prefix.len()..]) {
                found.extend(grads.values().get(&ours).into_iter().flatten());
            }
            comparison.relative_l2(&name, &found, &self.module.floats(&name)?.values, GRADIENT, FLOOR);
        }
        Ok(())
    }
}

/// Our names of a parameter of the class: three for a fused one, whose rows are those of query, key and value.
fn ours(theirs: &str) -> Vec<String> {
    let decoder = theirs.starts_with("decoder.");
    let name = theirs.replace(".norm1.", ".attention.norm.");
    let name = match decoder {
        true => name.replace(".norm2.", ".cross.norm.").replace(".norm3.", ".ffn.norm."),
        false => name.replace(".norm2.", ".ffn.norm."),
    };
    let name = name.replace("coder.norm.", "coder.final_norm.").replace("self_attn", "attention");
    let name = name.replace("multihead_attn", "cross").replace("out_proj", "out");
    let name = name.replace("linear1", "ffn.up").replace("linear2", "ffn.down");
    match name.split_once("in_proj_") {
        Some((branch, kind)) => ["query", "key", "value"].map(|part| format!("{branch}{part}.{kind}")).to_vec(),
        None => vec![name],
    }
}

/// The class's parameters by our names.
struct Weights<'r, 'm> {
    run: &'r Run<'m>,
}

impl Weights<'_, '_> {
    fn values(&self, name: &str) -> Result<Vec<f32>> {
        let table = match name {
            "encoder.embed.tokens.weight" => Some("src"),
            "decoder.embed.tokens.weight" => Some("tgt"),
            _ => None,
        };
        if let Some(side) = table {
            return Ok(self.run.module.floats(&self.run.tensor(side))?.values);
        }
        let prefix = self.run.tensor("param.");
        for theirs in self.run.module.names().into_iter().filter(|theirs| theirs.starts_with(&prefix)) {
            let all = ours(&theirs[prefix.len()..]);
            if let Some(part) = all.iter().position(|ours| ours == name) {
                let values = self.run.module.floats(&theirs)?.values;
                let size = values.len() / all.len();
                return Ok(values[part * size..(part + 1) * size].to_vec());
            }
        }
        bail!("{}: no parameter is our {name}", self.run.name)
    }
}

impl WeightSource for Weights<'_, '_> {
    type Error = anyhow::Error;

    fn matrix(&mut self, name: &str, rows: usize, cols: usize) -> Result<Matrix> {
        Ok(Matrix::from_f32(rows, cols, &self.values(name)?))
    }

    fn vector(&mut self, name: &str, _: &[usize]) -> Result<Vec<f32>> {
        self.values(name)
    }
}
