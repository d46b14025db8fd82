//! The tensors that a description needs, found in a checkpoint; everything that is wrong is found in one pass.

use crate::error::{Error, Misshaped, WeightsError};
use crate::layout::Layout;
use crate::names::{self, Leftover, Origin};
use attend_format::Checkpoint;
use attend_kernels::DType;
use attend_nn::spec::{Body, Head, ModelSpec, Table};
use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;

/// One of our tensors and where it lies.
#[derive(Debug, Clone)]
pub struct Mapped {
    /// Our name (see `attend_nn::names`).
    pub ours: String,
    pub shape: Vec<usize>,
    /// The file's name for the tensor, or for the fused one of which ours is a part.
    pub theirs: String,
    /// Further tensors of the file that belong to it: the scales of a quantised one.
    pub companions: Vec<String>,
    pub file: PathBuf,
    /// The type of the values in the file.
    pub dtype: DType,
    pub(crate) layout: Layout,
    pub(crate) storage: Storage,
    /// Name and layout where plain numbers would stand in its place, which differ for 4-bit floats.
    pub(crate) plain: Option<Box<(String, Layout)>>,
}

impl Mapped {
    /// Whether ours is the file's tensor as it stands: not a part, not reordered, nothing added.
    pub fn is_verbatim(&self) -> bool {
        self.layout.is_whole() && self.layout.added == 0 && self.storage == Storage::Plain
    }

    /// The file's name for the tensor and ours in it, as far as a tensor of plain numbers has them.
    pub(crate) fn place(&self) -> (&String, &Layout) {
        match &self.plain {
            Some(plain) => (&plain.0, &plain.1),
            None => (&self.theirs, &self.layout),
        }
    }

    /// How many values it has.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }
}

/// How the values of a tensor are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Storage {
    Plain,
    /// 8-bit floats, times a scale for each block of 128 x 128 (`weight_scale_inv`).
    ScaledBlocks,
    /// 4-bit floats two to a byte in `_blocks`, a power of two for each 32 of them in `_scales`.
    SplitMxfp4,
}

impl Storage {
    /// A layout as it is in this storage: 4-bit floats lie along the inputs, so that a matrix of them is never
    /// transposed.
    fn laid_out(self, layout: &Layout) -> Cow<'_, Layout> {
        match self {
            Storage::SplitMxfp4 if layout.transposed => Cow::Owned(layout.upright()),
            Storage::Plain | Storage::ScaledBlocks | Storage::SplitMxfp4 => Cow::Borrowed(layout),
        }
    }
}

/// A tensor of the file that should equal one that is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TiedCopy {
    pub theirs: String,
    /// The file's name of the tensor that is used.
    pub used: String,
}

/// What the pass over a checkpoint's tensors found.
#[derive(Debug, Default)]
pub(crate) struct Mapping {
    pub tensors: Vec<Mapped>,
    pub copies: Vec<TiedCopy>,
    pub notices: Vec<String>,
}

/// Finds every tensor that `spec` needs.
pub(crate) fn map(spec: &ModelSpec, table: &names::Table, checkpoint: &Checkpoint) -> Result<Mapping, Error> {
    let mut wrong = WeightsError { path: checkpoint.path().to_path_buf(), ..WeightsError::default() };
    let mut mapping = Mapping::default();
    let mut used: HashSet<String> = HashSet::new();
    let mut others: Vec<TiedCopy> = Vec::new();
    for required in spec.tensors() {
        let mut origin = table.origin(&required.name).ok_or_else(|| unlisted(&required.name))?;
        let there = |origin: &Origin| -> Vec<Found> {
            origin.theirs.iter().filter_map(|name| find(checkpoint, name)).collect()
        };
        let mut present = there(&origin);
        if let (true, Some(other)) = (present.is_empty(), table.other_origin(&required.name)) {
            let found = there(&other);
            if !found.is_empty() {
                (origin, present) = (other, found);
            }
        }
        let layout = Layout::new(&required.name, &required.shape, &origin.verbs, spec)?;
        // Of several names the first that fits; one that does not fit only to be reported.
        let best =
            present.iter().position(|found| found.shape == found.storage.laid_out(&layout).their_shape).unwrap_or(0);
        if present.is_empty() {
            if let Some(name) = origin.theirs.iter().find(|name| checkpoint.unreadable().contains_key(*name)) {
                checkpoint.require(name)?;
            }
            wrong.missing.extend(origin.theirs.into_iter().next());
            continue;
        }
        let found = present.swap_remove(best);
        let (plain, layout) = (layout.clone(), found.storage.laid_out(&layout).into_owned());
        let equal = present.into_iter().filter(|other| other.shape == found.shape);
        others.extend(equal.map(|other| TiedCopy { theirs: other.name, used: found.name.clone() }));
        if found.shape != layout.their_shape {
            let expected = layout.their_shape.clone();
            wrong.misshaped.push(Misshaped {
                tensor: found.name.clone(),
                file: found.file.clone(),
                expected,
                found: found.shape.clone(),
            });
        }
        if found.storage == Storage::ScaledBlocks {
            wrong.misshaped.extend(misshaped_scales(checkpoint, &found));
        }
        used.insert(found.name.clone());
        used.extend(found.companions.iter().cloned());
        mapping.tensors.push(found.mapped(required.name, required.shape, layout, plain));
    }
    others.extend(tied_copies(spec, table, checkpoint, &mapping));
    others.retain(|copy| !used.contains(&copy.theirs));
    used.extend(others.iter().map(|copy| copy.theirs.clone()));
    mapping.copies = others;
    leftovers(spec, table, checkpoint, &used, &mut mapping.notices, &mut wrong);
    // The parts of a fused tensor all report it.
    wrong.missing.dedup();
    wrong.misshaped.dedup_by(|a, b| a.tensor == b.tensor);
    if wrong.is_empty() { Ok(mapping) } else { Err(wrong.into()) }
}

/// The scales of a tensor, if there are not as many as it has blocks of 128 x 128.
fn misshaped_scales(checkpoint: &Checkpoint, found: &Found) -> Option<Misshaped> {
    let info = checkpoint.tensor(found.companions.first()?)?;
    let expected = scale_shape(&found.shape);
    let (tensor, file) = (info.name.clone(), info.file.to_path_buf());
    (info.shape != expected).then(|| Misshaped { tensor, file, expected, found: info.shape.clone() })
}

/// The shape of the scales of a tensor in blocks of 128 x 128; dimensions in front of the last two are a stack.
pub(crate) fn scale_shape(shape: &[usize]) -> Vec<usize> {
    let stack = shape.len().saturating_sub(2);
    shape.iter().enumerate().map(|(index, dim)| if index < stack { *dim } else { dim.div_ceil(128) }).collect()
}

/// Where every tensor of `spec` goes in a new file with the names of `table`.
pub(crate) fn plan(spec: &ModelSpec, table: &names::Table) -> Result<Vec<Mapped>, Error> {
    let planned = spec.tensors().into_iter().map(|required| {
        let origin = table.origin(&required.name).ok_or_else(|| unlisted(&required.name))?;
        let layout = Layout::new(&required.name, &required.shape, &origin.verbs, spec)?;
        Ok(Mapped {
            ours: required.name,
            shape: required.shape,
            theirs: origin.theirs.into_iter().next().unwrap_or_default(),
            companions: Vec::new(),
            file: PathBuf::new(),
            dtype: DType::F32,
            layout,
            storage: Storage::Plain,
            plain: None,
        })
    });
    planned.collect()
}

fn unlisted(ours: &str) -> Error {
    Error::Table(format!("no line for `{ours}`"))
}

/// A tensor of the file under one of its names.
struct Found {
    name: String,
    companions: Vec<String>,
    file: PathBuf,
    dtype: DType,
    /// The shape of its values, whatever way they are packed.
    shape: Vec<usize>,
    storage: Storage,
}

impl Found {
    fn mapped(self, ours: String, shape: Vec<usize>, layout: Layout, plain: Layout) -> Mapped {
        let Found { name: theirs, companions, file, dtype, storage, .. } = self;
        let plain = match storage {
            Storage::Plain | Storage::ScaledBlocks => None,
            Storage::SplitMxfp4 => {
                Some(Box::new((theirs.strip_suffix("_blocks").unwrap_or(&theirs).to_string(), plain)))
            }
        };
        Mapped { ours, shape, theirs, companions, file, dtype, layout, storage, plain }
    }
}

/// The tensor `name`, plain or packed with scales beside it.
fn find(checkpoint: &Checkpoint, name: &str) -> Option<Found> {
    if let Some(info) = checkpoint.tensor(name) {
        let scales = format!("{name}_scale_inv");
        let scaled = info.dtype == DType::F8E4M3 && checkpoint.tensor(&scales).is_some();
        return Some(Found {
            name: name.to_string(),
            companions: if scaled { vec![scales] } else { Vec::new() },
            file: info.file.to_path_buf(),
            dtype: info.dtype,
            shape: info.shape.clone(),
            storage: if scaled { Storage::ScaledBlocks } else { Storage::Plain },
        });
    }
    let (blocks, scales) = (format!("{name}_blocks"), format!("{name}_scales"));
    let (info, scale) = (checkpoint.tensor(&blocks)?, checkpoint.tensor(&scales)?);
    let (16, [rest @ .., groups]) = info.shape.split_last().map(|(last, rest)| (*last, rest))? else { return None };
    let packed = info.dtype == DType::U8 && scale.dtype == DType::U8 && scale.shape == [rest, &[*groups]].concat();
    packed.then(|| Found {
        name: blocks,
        companions: vec![scales],
        file: info.file.to_path_buf(),
        dtype: DType::MXFP4,
        shape: [rest, &[groups.saturating_mul(32)]].concat(),
        storage: Storage::SplitMxfp4,
    })
}

/// Output matrices in the file of a model that uses its token table instead.
fn tied_copies(spec: &ModelSpec, table: &names::Table, checkpoint: &Checkpoint, mapping: &Mapping) -> Vec<TiedCopy> {
    if !matches!(&spec.head, Head::Lm(lm) if lm.tied) {
        return Vec::new();
    }
    let ours = match &spec.body {
        Body::Encoder(_) | Body::Decoder(_) => "embed.tokens.weight",
        Body::EncoderDecoder { decoder, .. } => match decoder.embed.table {
            Table::Own => "decoder.embed.tokens.weight",
            Table::Encoder => "encoder.embed.tokens.weight",
        },
    };
    let Some(embedding) = mapping.tensors.iter().find(|tensor| tensor.ours == ours) else { return Vec::new() };
    let names = table.origin("head.weight").map(|origin| origin.theirs).unwrap_or_default();
    let there =
        names.into_iter().filter(|name| checkpoint.tensor(name).is_some_and(|info| info.shape == embedding.shape));
    there.map(|theirs| TiedCopy { theirs, used: embedding.theirs.clone() }).collect()
}

/// Sorts what no weight comes from into buffers, parts that are not built, and surprises.
fn leftovers(
    spec: &ModelSpec,
    table: &names::Table,
    checkpoint: &Checkpoint,
    used: &HashSet<String>,
    notices: &mut Vec<String>,
    wrong: &mut WeightsError,
) {
    let idle = idle_names(spec, table);
    let mut aside = Vec::new();
    for name in checkpoint.tensors().keys().chain(checkpoint.unreadable().keys()) {
        if used.contains(name) {
            continue;
        }
        match table.leftover(name, spec.output_stack().layers.len()) {
            Leftover::Buffer => {}
            Leftover::Unused => aside.push(name.as_str()),
            Leftover::Unknown if idle.contains(name) => aside.push(name.as_str()),
            Leftover::Unknown => wrong.unexpected.push(name.clone()),
        }
    }
    if let Some(first) = aside.first() {
        let more = if aside.len() > 1 { format!(" and {} more", aside.len() - 1) } else { String::new() };
        notices.push(format!("`{first}`{more} in the file belong to a part that this model does not use"));
    }
}

/// The file's names for a head and a pooler that the description does not have.
fn idle_names(spec: &ModelSpec, table: &names::Table) -> BTreeSet<String> {
    let mut names = Vec::new();
    if spec.head == Head::None {
        let parts = ["head.weight", "head.bias", "head.transform.weight", "head.transform.bias"];
        names.extend(parts.into_iter().chain(["head.norm.weight", "head.norm.bias"]));
    }
    if spec.pooler.is_none() {
        names.extend(["pooler.weight", "pooler.bias"]);
    }
    names.into_iter().filter_map(|name| table.origin(name)).flat_map(|origin| origin.theirs).collect()
}
