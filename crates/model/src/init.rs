//! A model that has not been trained: random weights for a description, as a folder of its own.

use crate::describe::describe_design;
use crate::error::Error;
use attend_format::{Fill, Kind, TensorSpec, safetensors};
use attend_kernels::{DType, quantize};
use attend_nn::names::Required;
use attend_nn::spec::ModelSpec;
use std::collections::BTreeMap;
use std::f64::consts::TAU;
use std::path::{Path, PathBuf};

/// What a caller chooses about new weights.
#[derive(Debug, Clone, Copy)]
pub struct InitOptions {
    pub seed: u64,
    /// The type of matrices in the file: f32, f16 or bf16.
    pub dtype: DType,
}

/// The deviation of new matrices (Radford et al. 2018).
const DEVIATION: f64 = 0.02;

/// Writes a folder with the description at `spec` and random weights for it under our names. Returns the file of weights.
///
/// Matrices are normal with deviation 0.02, those that end a branch divided by the square root of the number of branches
/// (Radford et al. 2019, section 2.3); norms are 1, biases 0. A tensor's values depend on the seed and its name alone.
pub fn init(spec: &Path, out: &Path, options: &InitOptions) -> Result<PathBuf, Error> {
    let described = describe_design(spec)?;
    let config = described.checkpoint.config();
    if described.checkpoint.kind() != Kind::Described {
        let problem = "a description of its own is wanted (see docs/specs.md), not another model's configuration";
        return Err(Error::Config { file: config.file().into(), field: "decoder".into(), problem: problem.into() });
    }
    let failed = |action: &'static str, file: &Path| {
        let file = file.to_path_buf();
        move |source| Error::Format(attend_format::Error::Io { file, action, source })
    };
    std::fs::create_dir_all(out).map_err(failed("create", out))?;
    let toml = config.file().extension().is_some_and(|ending| ending == "toml");
    let (copy, other) = if toml { ("spec.toml", "spec.json") } else { ("spec.json", "spec.toml") };
    for taken in [other, "config.json"].map(|name| out.join(name)) {
        if taken.exists() {
            let problem = "is there already and would describe the folder instead".into();
            return Err(Error::Config { file: taken, field: "the file".into(), problem });
        }
    }
    let target = out.join(copy);
    if config.file() != target {
        std::fs::copy(config.file(), &target).map_err(failed("write", &target))?;
    }
    let weights = out.join("model.safetensors");
    write(&described.spec, &weights, options)?;
    Ok(weights)
}

fn write(spec: &ModelSpec, file: &Path, options: &InitOptions) -> Result<(), Error> {
    let tensors = spec.tensors();
    let kept = |tensor: &Required| if tensor.shape.len() > 1 { options.dtype } else { DType::F32 };
    let list: Vec<TensorSpec> = tensors
        .iter()
        .map(|tensor| TensorSpec { name: tensor.name.clone(), dtype: kept(tensor), shape: tensor.shape.clone() })
        .collect();
    let branches = branches(spec);
    let mut fill =
        |index: usize, to: &mut dyn std::io::Write| -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
            let Some(tensor) = tensors.get(index) else { return Ok(()) };
            let columns = tensor.shape.last().copied().unwrap_or(1);
            let mut values = Values::new(tensor, branches, options.seed);
            let (mut row, mut bytes) = (vec![0.0; columns], vec![0; kept(tensor).bytes(columns).unwrap_or(0)]);
            for _ in 0..tensor.shape.iter().rev().skip(1).product() {
                row.iter_mut().for_each(|value| *value = values.next());
                quantize(kept(tensor), &row, &mut bytes)?;
                to.write_all(&bytes)?;
            }
            Ok(())
        };
    let fill: &mut Fill<'_> = &mut fill;
    Ok(safetensors::write(file, &list, &BTreeMap::new(), fill)?)
}

/// Branches that are added to the longest residual stream.
fn branches(spec: &ModelSpec) -> usize {
    let of = |layer: &attend_nn::spec::Layer| if layer.cross.is_some() { 3 } else { 2 };
    spec.stacks().into_iter().map(|(_, _, stack)| stack.layers.iter().map(of).sum()).max().unwrap_or(1)
}

/// The values of one tensor, in order.
struct Values {
    state: u64,
    kind: Start,
    /// The second of a pair of normal numbers.
    second: Option<f64>,
}

enum Start {
    Constant(f32),
    Normal(f64),
}

impl Values {
    fn new(tensor: &Required, branches: usize, seed: u64) -> Values {
        let name = tensor.name.as_str();
        let norm = name.ends_with("norm.weight");
        let ends_branch = name.ends_with(".out.weight") || name.ends_with(".down.weight");
        let kind = match tensor.shape.len() {
            _ if norm => Start::Constant(1.0),
            0 | 1 => Start::Constant(0.0),
            _ if ends_branch => Start::Normal(DEVIATION / (branches.max(1) as f64).sqrt()),
            _ => Start::Normal(DEVIATION),
        };
        // FNV-1a of the name, so that a tensor does not depend on the ones before it.
        let hash = name
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        Values { state: hash ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), kind, second: None }
    }

    fn next(&mut self) -> f32 {
        match self.kind {
            Start::Constant(value) => value,
            Start::Normal(deviation) => (self.normal() * deviation) as f32,
        }
    }

    /// A normal number (Box & Muller 1958).
    fn normal(&mut self) -> f64 {
        if let Some(second) = self.second.take() {
            return second;
        }
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        let angle = TAU * self.uniform();
        self.second = Some(radius * angle.sin());
        radius * angle.cos()
    }

    /// Uniform in [0, 1): SplitMix64 (Steele et al. 2014).
    fn uniform(&mut self) -> f64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}
