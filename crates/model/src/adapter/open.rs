//! Reading an adapter's files against its base: every tensor must have its place, and every target its tensors.

use super::{Adapter, AdapterConfig, AdapterModule, Biases, Part, Replaced, transposed};
use crate::describe::Described;
use crate::error::Error;
use crate::layout::Layout;
use crate::memory;
use crate::names::Verb;
use attend_format::{Checkpoint, Kind};
use attend_kernels::{DType, Matrix, dequantize};
use attend_nn::spec::Head;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What every tensor's name starts with.
const ROOT: &str = "base_model.model.";

/// The files of weights, the preferred one first.
const FILES: [&str; 2] = ["adapter_model.safetensors", "adapter_model.bin"];

/// One of our weights, as the reference's module has it.
struct Place {
    ours: String,
    shape: Vec<usize>,
    layout: Layout,
    /// Whether ours is not a part of the module's outputs, but turned round or one of a stack.
    regrouped: bool,
}

/// The base's weights by the reference's names for them.
struct Base {
    places: BTreeMap<String, Vec<Place>>,
    /// The reference's own spelling of every matrix's module.
    modules: Vec<String>,
    tied: bool,
}

impl Base {
    fn new(base: &Described) -> Result<Base, Error> {
        let table = base.known.table(&base.spec, Kind::HuggingFace, base.checkpoint.config())?;
        let tied = matches!(&base.spec.head, Head::Lm(lm) if lm.tied);
        let mut places: BTreeMap<String, Vec<Place>> = BTreeMap::new();
        let mut modules = Vec::new();
        let mut required = base.spec.tensors();
        if let Head::Lm(lm) = &base.spec.head
            && tied
        {
            let shape = vec![lm.vocab, base.spec.output_stack().embed.width];
            required.push(attend_nn::names::Required { name: "head.weight".into(), shape });
        }
        for required in required {
            let Some(origin) = table.origin(&required.name) else { continue };
            let layout = Layout::new(&required.name, &required.shape, &origin.verbs, &base.spec)?;
            let regrouped = origin.verbs.iter().any(|verb| matches!(verb, Verb::KvHeads | Verb::Stacked));
            if let (Some(module), 2) = (origin.theirs.first().and_then(|name| module_of(name)), required.shape.len())
                && modules.last().is_none_or(|last| last != module)
            {
                modules.push(module.to_owned());
            }
            for theirs in origin.theirs {
                let (ours, shape) = (required.name.clone(), required.shape.clone());
                let place = Place { ours, shape, layout: layout.clone(), regrouped };
                places.entry(theirs).or_default().push(place);
            }
        }
        Ok(Base { places, modules, tied })
    }

    fn of_module(&self, module: &str) -> Option<&[Place]> {
        self.places.get(&format!("{module}.weight")).map(Vec::as_slice)
    }
}

fn module_of(weight: &str) -> Option<&str> {
    weight.strip_suffix(".weight")
}

/// The two matrices of a module.
#[derive(Default)]
struct Pair {
    a: Option<String>,
    b: Option<String>,
    table: bool,
}

/// The tensors of the files, sorted by what they are.
#[derive(Default)]
struct Sorted {
    pairs: BTreeMap<String, Pair>,
    /// Whole weights by the base's names.
    whole: BTreeMap<String, Whole>,
}

/// A weight that the file has whole.
struct Whole {
    /// The file's name for it.
    name: String,
    /// Whether it is what lies under an adapter: peft keeps adapted token tables and output matrices this way.
    under: bool,
}

struct Reading<'a> {
    config: AdapterConfig,
    file: PathBuf,
    tensors: Checkpoint,
    base: &'a Base,
}

impl Adapter {
    /// Reads the adapter in a folder and checks it against the base it is for.
    ///
    /// # Errors
    /// Settings that are not built, tensors without a place in the base, of a wrong shape or not finite, and targets
    /// without tensors, each by its name.
    pub fn open(path: &Path, base: &Described) -> Result<Adapter, Error> {
        let mut notices = Vec::new();
        let config = AdapterConfig::open(&path.join("adapter_config.json"), &mut notices)?;
        let file = FILES.iter().map(|name| path.join(name)).find(|file| file.exists());
        let file = file.unwrap_or_else(|| path.join(FILES[0]));
        let tensors = Checkpoint::open(&file)?;
        fits(&file, &tensors, memory::available())?;
        let base = Base::new(base)?;
        let reading = Reading { config, file, tensors, base: &base };
        let sorted = reading.sort()?;
        let modules =
            sorted.pairs.iter().map(|(name, pair)| reading.module(name, pair)).collect::<Result<Vec<_>, _>>()?;
        let replaced = reading.replaced(&sorted)?;
        reading.check_targets(&modules, &replaced)?;
        Ok(Adapter { path: path.to_owned(), config: reading.config, modules, replaced, notices })
    }
}

/// Whether a type holds whole numbers, which mean something only with scales that an adapter's files have no place for.
fn is_whole(dtype: DType) -> bool {
    use DType::*;
    match dtype {
        I64 | I32 | I16 | I8 | U64 | U32 | U16 | U8 | Bool => true,
        F64 | F32 | F16 | BF16 | F8E4M3 | F8E5M2 | Q4_0 | Q4_1 | Q5_0 | Q5_1 | Q8_0 | Q2_K | Q3_K | Q4_K | Q5_K
        | Q6_K | IQ4_NL | IQ4_XS | MXFP4 => false,
    }
}

/// Refuses an adapter that the memory has no room for: all of its values in f32, which for a while are there twice.
fn fits(file: &Path, tensors: &Checkpoint, available: Option<u64>) -> Result<(), Error> {
    let elements = |shape: &[usize]| shape.iter().fold(1u128, |all, &size| all.saturating_mul(size as u128));
    let values = tensors.tensors().values().map(|tensor| elements(&tensor.shape)).fold(0, u128::saturating_add);
    let needed = values.saturating_mul(2 * size_of::<f32>() as u128);
    match available {
        Some(available) if needed > u128::from(available) => {
            Err(Error::AdapterTooLarge { file: file.to_owned(), needed, available })
        }
        Some(_) | None => Ok(()),
    }
}

impl Reading<'_> {
    fn error(&self, tensor: &str, problem: impl Into<String>) -> Error {
        Error::Adapter { file: self.file.clone(), tensor: tensor.to_owned(), problem: problem.into() }
    }

    fn sort(&self) -> Result<Sorted, Error> {
        let mut sorted = Sorted::default();
        for name in self.tensors.tensors().keys() {
            let Some(inner) = name.strip_prefix(ROOT) else {
                return Err(self.error(name, format!("its name should start with `{ROOT}`")));
            };
            if inner.contains("lora_magnitude_vector") {
                return Err(self.error(name, "DoRA is not built"));
            }
            // Older files keep the adapter's own name in theirs.
            let inner = inner.replace(".default", "");
            let bare = inner.strip_suffix(".weight").unwrap_or(&inner);
            let is = |ending: &str| bare.strip_suffix(ending).map(str::to_owned);
            if let Some(module) = is(".lora_A").or_else(|| is(".lora_embedding_A")) {
                let pair = sorted.pairs.entry(module).or_default();
                (pair.a, pair.table) = (Some(name.clone()), bare.ends_with("embedding_A"));
            } else if let Some(module) = is(".lora_B").or_else(|| is(".lora_embedding_B")) {
                sorted.pairs.entry(module).or_default().b = Some(name.clone());
            } else {
                let whole = inner.replace(".modules_to_save", "").replace(".base_layer", "");
                let under = inner.contains(".base_layer");
                sorted.whole.insert(whole, Whole { name: name.clone(), under });
            }
        }
        if let Some(name) = self.tensors.unreadable().keys().next() {
            self.tensors.require(name)?;
        }
        Ok(sorted)
    }

    fn module(&self, name: &str, pair: &Pair) -> Result<AdapterModule, Error> {
        let (Some(a_name), Some(b_name)) = (&pair.a, &pair.b) else {
            let (known, missing) = if pair.a.is_some() { (&pair.a, "lora_B") } else { (&pair.b, "lora_A") };
            let known = known.as_deref().unwrap_or(name);
            return Err(self.error(known, format!("its {missing} is missing")));
        };
        let places = self.base.of_module(name).ok_or_else(|| self.error(a_name, "the base has no such layer"))?;
        let first = places.first().ok_or_else(|| self.error(a_name, "the base has no such layer"))?;
        let output = first.ours == "head.weight";
        if !self.config.targets(name, layer_of(&first.ours), output) && self.config.replaces(name) {
            return Err(self.error(a_name, "the configuration says that this module is replaced whole"));
        }
        if !self.config.targets(name, layer_of(&first.ours), output) {
            return Err(self.error(a_name, "the configuration's target_modules do not name this module"));
        }
        if places.iter().any(|place| place.regrouped) {
            return Err(self.error(a_name, "adapters of this module are not built: its outputs are regrouped here"));
        }
        if pair.table != first.ours.ends_with("embed.tokens.weight") || first.shape.len() != 2 {
            return Err(self.error(a_name, "only linear layers and token tables can be adapted"));
        }
        // The file's B has a row for every output of the module, of which ours may be a part.
        let outputs = match (pair.table, first.layout.transposed) {
            (true, _) => first.shape.get(1),
            (false, true) => first.layout.their_shape.get(1),
            (false, false) => first.layout.their_shape.first(),
        };
        let (outputs, inputs) = (outputs.copied().unwrap_or(0), first.shape.get(usize::from(!pair.table)));
        let (rank, inputs) = (self.config.rank_of(name), inputs.copied().unwrap_or(0));
        let a = self.read(a_name, &[rank, inputs])?;
        let b = self.read(b_name, &[outputs, rank])?;
        let (rows, cols) = if pair.table { (inputs, rank) } else { (rank, inputs) };
        let a = if pair.table { transposed(&a, rank, inputs) } else { a };
        let part = |place: &Place| {
            let layer = module_of(&place.ours).unwrap_or(&place.ours).to_owned();
            let own = place.shape.first().copied().unwrap_or(0);
            let rows: Vec<usize> =
                if pair.table { (0..outputs).collect() } else { (0..own).map(|r| place.layout.their_row(r)).collect() };
            let values: Vec<f32> =
                rows.iter().filter_map(|row| b.get(row * rank..(row + 1) * rank)).flatten().copied().collect();
            let b = Arc::new(Matrix::from_f32(rows.len(), rank, &values));
            Part { layer, rows, b }
        };
        Ok(AdapterModule {
            name: name.to_owned(),
            a_name: a_name.clone(),
            b_name: b_name.clone(),
            rank,
            scale: self.config.scale_of(name, rank),
            a: Arc::new(Matrix::from_f32(rows, cols, &a)),
            outputs,
            table: pair.table,
            parts: places.iter().map(part).collect(),
        })
    }

    /// A tensor's values, after its shape was found right.
    fn read(&self, name: &str, expected: &[usize]) -> Result<Vec<f32>, Error> {
        let info = self.tensors.require(name)?;
        if info.shape != expected {
            return Err(
                self.error(name, format!("it should be {expected:?} for this base and rank, and is {:?}", info.shape))
            );
        }
        if is_whole(info.dtype) {
            let problem = format!("it is stored as {}, and numbers with a fraction are wanted", info.dtype);
            return Err(self.error(name, problem));
        }
        let size = usize::try_from(info.bytes).map_err(|_| self.error(name, "it is too large"))?;
        let (mut bytes, mut values) = (vec![0; size], vec![0.0; expected.iter().product()]);
        self.tensors.read_at(name, 0, &mut bytes)?;
        dequantize(info.dtype, &bytes, &mut values).map_err(|source| Error::Kernel {
            file: self.file.clone(),
            tensor: name.to_owned(),
            source,
        })?;
        match values.iter().position(|value| !value.is_finite()) {
            None => Ok(values),
            Some(index) => Err(Error::NotFinite {
                file: self.file.clone(),
                tensor: name.to_owned(),
                index: index as u64,
                value: values.get(index).map(f32::to_string).unwrap_or_default(),
            }),
        }
    }

    fn replaced(&self, sorted: &Sorted) -> Result<BTreeMap<String, Replaced>, Error> {
        let mut replaced = BTreeMap::new();
        for (theirs, Whole { name, under }) in &sorted.whole {
            let module = theirs.rsplit_once('.').map_or(theirs.as_str(), |(module, _)| module);
            let bias = theirs.ends_with(".bias");
            let adapted = *under && !bias && sorted.pairs.contains_key(module);
            if !(adapted || self.config.replaces(module) || bias && self.brings_bias(module)) {
                return Err(self.error(name, "nothing in the configuration asks for this tensor"));
            }
            let places = self.base.places.get(theirs);
            let places = places.ok_or_else(|| self.error(name, format!("the base has no weight `{theirs}`")))?;
            for place in places {
                let one_of_two = matches!(place.ours.as_str(), "head.weight" | "embed.tokens.weight");
                let shared = self.base.tied && one_of_two;
                if shared && !adapted {
                    let problem = "the base uses one matrix as token table and output matrix, and the adapter replaces \
                                   one of them";
                    return Err(self.error(name, problem));
                }
                let values = self.read(name, &place.layout.their_shape)?;
                // Under their adapters the two are still one.
                let ours = if shared { "embed.tokens.weight" } else { place.ours.as_str() };
                replaced.insert(ours.to_owned(), place.take(&values));
            }
        }
        Ok(replaced)
    }

    fn brings_bias(&self, module: &str) -> bool {
        let layer =
            self.base.of_module(module).and_then(|places| places.first()).and_then(|place| layer_of(&place.ours));
        match self.config.biases {
            Biases::None => false,
            Biases::Adapted => self.config.targets(module, layer, false),
            Biases::All => true,
        }
    }

    /// Every module that the configuration names must be in the files: an adapter cut short is no adapter.
    fn check_targets(&self, modules: &[AdapterModule], replaced: &BTreeMap<String, Replaced>) -> Result<(), Error> {
        let found: BTreeSet<&str> =
            modules.iter().flat_map(|module| &module.parts).map(|part| part.layer.as_str()).collect();
        if modules.is_empty() && replaced.is_empty() {
            return Err(self.error("lora_A", "the file holds no adapter"));
        }
        for module in &self.base.modules {
            let Some(places) = self.base.of_module(module) else { continue };
            let Some(first) = places.first() else { continue };
            let linear = !first.ours.contains("embed.") && !first.ours.contains("relative_bias");
            let output = first.ours == "head.weight";
            let targeted = linear && self.config.targets(module, layer_of(&first.ours), output);
            let covered = module_of(&first.ours).is_some_and(|layer| found.contains(layer));
            if targeted && !covered && !self.config.replaces(module) {
                let missing = format!("{ROOT}{module}.lora_A.weight");
                return Err(self.error(&missing, "target_modules name it, and it is not in the file"));
            }
        }
        Ok(())
    }
}

impl Place {
    /// Our rows of the file's tensor.
    fn take(&self, theirs: &[f32]) -> Replaced {
        let rows = self.shape.first().copied().unwrap_or(1);
        let cols: usize = self.shape.iter().skip(1).product();
        let width = self.layout.their_shape.get(1).copied().unwrap_or(1);
        let at = |row: usize, col: usize| match self.layout.transposed {
            true => col * width + self.layout.their_row(row),
            false => self.layout.their_row(row) * cols + col,
        };
        let each = (0..rows).flat_map(|row| (0..cols).map(move |col| (row, col)));
        let values =
            each.map(|(row, col)| theirs.get(at(row, col)).copied().unwrap_or(0.0) + f32::from(self.layout.added));
        let values: Vec<f32> = values.collect();
        match self.shape.as_slice() {
            [rows, cols] => Replaced::Matrix(Arc::new(Matrix::from_f32(*rows, *cols, &values))),
            _ => Replaced::Vector(values.into()),
        }
    }
}

/// The number of the layer that one of our weights is in.
fn layer_of(ours: &str) -> Option<usize> {
    let (_, rest) = ours.split_once("layers.")?;
    rest.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use attend_testkit::files::safetensors::{self, Tensor};

    #[test]
    fn what_the_memory_has_no_room_for_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("adapter_model.safetensors");
        let tensors = [Tensor::new("a", "F16", &[8, 4], vec![0; 64]), Tensor::new("b", "F32", &[2], vec![0; 8])];
        std::fs::write(&file, safetensors::file(&tensors)).unwrap();
        let tensors = Checkpoint::open(&file).unwrap();
        assert!(fits(&file, &tensors, Some(34 * 8)).is_ok() && fits(&file, &tensors, None).is_ok());
        let refused = fits(&file, &tensors, Some(34 * 8 - 1)).unwrap_err().to_string();
        assert!(refused.contains("adapter_model.safetensors") && refused.contains("272"), "{refused}");
    }
}
