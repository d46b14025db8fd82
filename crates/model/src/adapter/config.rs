//! `adapter_config.json`: which layers are adapted, at which rank, and how strongly.

use crate::error::Error;
use attend_format::Config;
use regex::Regex;
use serde_json::Value;
use std::path::Path;

/// What is assumed, and said, where the file gives no rank or strength.
const DEFAULT: f64 = 8.0;

/// Settings that change the computation in ways that are not built, and the value at which they change nothing.
const REFUSED: [&str; 12] = [
    "use_dora",
    "use_qalora",
    "use_bdlora",
    "lora_bias",
    "layer_replication",
    "alora_invocation_tokens",
    "trainable_token_indices",
    "target_parameters",
    "arrow_config",
    "monteclora_config",
    "velora_config",
    "kasa_config",
];

/// Ways to start an adapter that also change the weights of the base, so that the files do not hold all of it.
const CHANGES_THE_BASE: [&str; 4] = ["pissa", "olora", "corda", "loftq"];

/// Biases that the adapter brings along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Biases {
    None,
    /// Those of adapted layers.
    Adapted,
    All,
}

/// Which layers are adapted.
#[derive(Debug, Clone)]
enum Targets {
    /// Names or their ends.
    Names(Vec<String>),
    /// A pattern for the whole name.
    Pattern(Regex),
    AllLinear,
}

/// A pattern for names, and the value of the layers it fits.
type Exception = (Regex, f64);

/// The configuration of an adapter.
#[derive(Debug, Clone)]
pub struct AdapterConfig {
    pub rank: usize,
    pub alpha: f64,
    /// The scale is `alpha / sqrt(r)` in place of `alpha / r` (rank-stabilised LoRA, Kalajdzievski 2023).
    pub rank_stabilised: bool,
    pub biases: Biases,
    /// Modules whose weights the adapter replaces whole.
    pub replaced: Vec<String>,
    targets: Targets,
    excluded: Option<Targets>,
    layers: Option<Vec<usize>>,
    ranks: Vec<Exception>,
    alphas: Vec<Exception>,
}

impl AdapterConfig {
    /// Reads the file and refuses by name what is not built. Assumed values are told in `notices`.
    pub fn open(path: &Path, notices: &mut Vec<String>) -> Result<AdapterConfig, Error> {
        let config = Config::open(path)?;
        let kind = config.str("peft_type")?;
        if kind != "LORA" {
            return Err(config.bad("peft_type", format!("adapters of type `{kind}` are not built; LORA is")).into());
        }
        refuse(&config)?;
        let mut or_default = |key: &str| -> Result<f64, Error> {
            let value = config.f64_opt(key)?;
            if value.is_none() {
                notices.push(format!("{}: `{key}` is missing; {DEFAULT} is assumed", path.display()));
            }
            Ok(value.unwrap_or(DEFAULT))
        };
        or_default("r")?;
        let alpha = or_default("lora_alpha")?;
        let rank = config.usize_or("r", DEFAULT as usize)?;
        if rank == 0 {
            return Err(config.bad("r", "a rank of 0 adapts nothing; it must be at least 1").into());
        }
        let targets = targets(&config, "target_modules")?;
        Ok(AdapterConfig {
            rank,
            alpha,
            rank_stabilised: config.bool_or("use_rslora", false)?,
            biases: match config.str_or("bias", "none")? {
                "none" => Biases::None,
                "lora_only" => Biases::Adapted,
                "all" => Biases::All,
                other => {
                    return Err(config.bad("bias", format!("none, lora_only or all is wanted, not `{other}`")).into());
                }
            },
            replaced: config.str_list("modules_to_save")?.unwrap_or_default(),
            targets: targets.ok_or_else(|| config.missing("target_modules"))?,
            excluded: self::targets(&config, "exclude_modules")?,
            layers: layers(&config)?,
            ranks: exceptions(&config, "rank_pattern")?,
            alphas: exceptions(&config, "alpha_pattern")?,
        })
    }

    /// The rank of a module.
    pub fn rank_of(&self, module: &str) -> usize {
        exception(&self.ranks, module).map_or(self.rank, |rank| rank as usize)
    }

    /// What the product of a module's matrices is multiplied by, at the rank they have.
    pub fn scale_of(&self, module: &str, rank: usize) -> f64 {
        let alpha = exception(&self.alphas, module).unwrap_or(self.alpha);
        let rank = rank.max(1) as f64;
        alpha / if self.rank_stabilised { rank.sqrt() } else { rank }
    }

    /// Whether a module is adapted: `layer` is its layer's number, `output` whether it is the head's output matrix.
    pub fn targets(&self, module: &str, layer: Option<usize>, output: bool) -> bool {
        let listed = self.layers.as_ref().is_none_or(|layers| layer.is_some_and(|layer| layers.contains(&layer)));
        let excluded = self.excluded.as_ref().is_some_and(|excluded| excluded.fits(module, output));
        listed && !excluded && self.targets.fits(module, output)
    }

    /// Whether a module's weights are replaced whole.
    pub fn replaces(&self, module: &str) -> bool {
        self.replaced.iter().any(|name| names(name, module))
    }
}

impl Targets {
    fn fits(&self, module: &str, output: bool) -> bool {
        match self {
            Targets::Names(list) => list.iter().any(|name| names(name, module)),
            Targets::Pattern(pattern) => pattern.is_match(module),
            Targets::AllLinear => !output,
        }
    }
}

/// Whether `name` is the module or its end.
fn names(name: &str, module: &str) -> bool {
    module.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

fn exception(exceptions: &[Exception], module: &str) -> Option<f64> {
    exceptions.iter().find(|(pattern, _)| pattern.is_match(module)).map(|(_, value)| *value)
}

fn refuse(config: &Config) -> Result<(), Error> {
    for key in REFUSED {
        let idle = |value: &Value| match value {
            Value::Bool(on) => !on,
            Value::Array(list) => list.is_empty(),
            Value::Object(map) => map.is_empty(),
            Value::Null | Value::Number(_) | Value::String(_) => false,
        };
        if config.value(key).is_some_and(|value| !idle(value)) {
            return Err(config.bad(key, "this kind of adapter is not built").into());
        }
    }
    if let Some(Value::String(start)) = config.value("init_lora_weights")
        && CHANGES_THE_BASE.iter().any(|name| start.to_ascii_lowercase().starts_with(name))
    {
        let problem = format!("`{start}` changes the base's weights too; save the adapter converted to plain LoRA");
        return Err(config.bad("init_lora_weights", problem).into());
    }
    Ok(())
}

/// A pattern that must fit the whole name.
fn pattern(config: &Config, key: &str, text: &str) -> Result<Regex, Error> {
    Regex::new(text).map_err(|error| {
        let reason = error.to_string().lines().last().unwrap_or_default().trim().to_owned();
        config.bad(key, format!("the pattern `{text}` cannot be read: {reason}")).into()
    })
}

fn targets(config: &Config, key: &str) -> Result<Option<Targets>, Error> {
    match config.value(key) {
        None => Ok(None),
        Some(Value::String(all)) if all == "all-linear" => Ok(Some(Targets::AllLinear)),
        Some(Value::String(text)) => Ok(Some(Targets::Pattern(pattern(config, key, &format!("^(?:{text})$"))?))),
        Some(_) => Ok(config.str_list(key)?.map(Targets::Names)),
    }
}

/// Numbers of layers, one or a list.
fn layers(config: &Config) -> Result<Option<Vec<usize>>, Error> {
    match config.value("layers_to_transform") {
        Some(Value::Number(_)) => Ok(config.usize_opt("layers_to_transform")?.map(|layer| vec![layer])),
        _ => Ok(config.usize_list("layers_to_transform")?.filter(|layers| !layers.is_empty())),
    }
}

fn exceptions(config: &Config, key: &str) -> Result<Vec<Exception>, Error> {
    let Some(map) = config.object(key)? else { return Ok(Vec::new()) };
    let each = |name: &String| {
        let value = map.f64(name)?;
        if value <= 0.0 {
            return Err(config.bad(key, format!("`{name}` must be more than 0, found {value}")).into());
        }
        Ok((pattern(config, key, &format!(r"^(?:.*\.)?(?:{name})$"))?, value))
    };
    map.map().keys().map(each).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(changes: Value) -> Result<AdapterConfig, String> {
        let mut config = json!({
            "peft_type": "LORA", "r": 16, "lora_alpha": 16, "target_modules": ["q_proj", "v_proj"]
        });
        for (key, value) in changes.as_object().unwrap() {
            config[key] = value.clone();
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("adapter_config.json");
        std::fs::write(&file, config.to_string()).unwrap();
        AdapterConfig::open(&file, &mut Vec::new()).map_err(|error| error.to_string())
    }

    #[test]
    fn scales_are_alpha_over_the_rank_or_its_root() {
        let scale = |changes: Value| parse(changes).map(|config| config.scale_of("x.q_proj", config.rank)).unwrap();
        assert_eq!(scale(json!({})), 1.0);
        assert_eq!(scale(json!({"use_rslora": true})), 4.0);
        assert_eq!(scale(json!({"r": 8})), 2.0);
        // Without a strength the writer's default counts.
        assert_eq!(scale(json!({"lora_alpha": null})), 0.5);
        assert!(parse(json!({"r": 0})).unwrap_err().contains("`r`"));
        let exceptions = json!({"alpha_pattern": {"q_proj": 64}, "rank_pattern": {"layers.1.self_attn.q_proj": 4}});
        let config = parse(exceptions).unwrap();
        assert_eq!(config.scale_of("model.layers.0.self_attn.q_proj", 16), 4.0);
        assert_eq!(config.scale_of("model.layers.0.self_attn.v_proj", 16), 1.0);
        assert_eq!(config.rank_of("model.layers.1.self_attn.q_proj"), 4);
        assert_eq!(config.rank_of("model.layers.11.self_attn.q_proj"), 16);
    }

    #[test]
    fn targets_are_names_patterns_or_everything() {
        let fits = |changes: Value, module: &str| parse(changes).unwrap().targets(module, Some(1), false);
        assert!(fits(json!({}), "model.layers.1.self_attn.q_proj") && fits(json!({}), "q_proj"));
        assert!(!fits(json!({}), "model.layers.1.self_attn.xq_proj"));
        let pattern = json!({"target_modules": r".*\.layers\.\d+\.self_attn\.(q|k)_proj"});
        assert!(fits(pattern.clone(), "model.layers.1.self_attn.k_proj"));
        assert!(!fits(pattern, "model.layers.1.self_attn.k_proj.extra"));
        assert!(fits(json!({"target_modules": "all-linear"}), "anything"));
        assert!(!parse(json!({"target_modules": "all-linear"})).unwrap().targets("lm_head", None, true));
        assert!(!fits(json!({"layers_to_transform": [0, 2]}), "model.layers.1.self_attn.q_proj"));
        assert!(fits(json!({"layers_to_transform": 1}), "model.layers.1.self_attn.q_proj"));
        assert!(!fits(json!({"exclude_modules": ["q_proj"]}), "model.layers.1.self_attn.q_proj"));
    }

    #[test]
    fn what_is_not_built_is_refused_by_name() {
        for (changes, field) in [
            (json!({"use_dora": true}), "use_dora"),
            (json!({"peft_type": "IA3"}), "peft_type"),
            (json!({"lora_bias": true}), "lora_bias"),
            (json!({"layer_replication": [[0, 4], [2, 5]]}), "layer_replication"),
            (json!({"target_parameters": ["experts.down_proj"]}), "target_parameters"),
            (json!({"init_lora_weights": "pissa_niter_4"}), "init_lora_weights"),
            (json!({"bias": "some"}), "bias"),
            (json!({"target_modules": "(?!x)"}), "target_modules"),
            (json!({"target_modules": null}), "target_modules"),
            (json!({"rank_pattern": {"q_proj": 0}}), "rank_pattern"),
        ] {
            let error = parse(changes.clone()).unwrap_err();
            assert!(error.contains(field) && error.contains("adapter_config.json"), "{changes}: {error}");
        }
        // Settings of the training, or at rest, change nothing here.
        parse(json!({"lora_dropout": 0.1, "use_dora": false, "layer_replication": null, "loftq_config": {}})).unwrap();
    }
}
