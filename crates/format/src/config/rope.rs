//! One view of the several ways in which files write down rotary positions.

use serde_json::{Map, Value};

use super::Config;
use crate::Error;

impl Config {
    /// The rotary settings of a layer type (`None` where all layers agree), in one form whatever the file's dialect:
    ///
    /// - `rope_parameters` (newer files), also when it nests one object per layer type (`full_attention`,
    ///   `sliding_attention`), or `rope_scaling` (older files) with `rope_type` or its old name `type`;
    /// - `rope_type` is always there: `default` when nothing scales, `longrope` also where old files say `su`;
    /// - `rope_theta` from inside, else from the top level (`rope_theta`, `rotary_emb_base`); absent when the file
    ///   has none, so that an architecture's own default applies;
    /// - `partial_rotary_factor` (`rotary_pct`) and `original_max_position_embeddings` likewise.
    pub fn rope(&self, layer_type: Option<&str>) -> Result<Config, Error> {
        let (name, mut map) = self.rope_object(layer_type)?;
        let inside = self.inner(&name, map.clone());
        let kind = match inside.str_any_opt(&["rope_type", "type"])? {
            None | Some("none") => "default",
            Some("su") => "longrope",
            Some(kind) => kind,
        };
        map.insert("rope_type".into(), Value::String(kind.into()));
        map.remove("type");
        for (key, outer) in [
            ("rope_theta", &["rope_theta", "rotary_emb_base"][..]),
            ("partial_rotary_factor", &["partial_rotary_factor", "rotary_pct"]),
            ("original_max_position_embeddings", &["original_max_position_embeddings"]),
        ] {
            if inside.has(key) {
                continue;
            }
            if let Some(value) = self.first(outer).and_then(|outer| self.value(outer)) {
                map.insert(key.into(), value.clone());
            }
        }
        Ok(self.inner(&name, map))
    }

    /// The layer types that `rope_parameters` tells apart; empty when it does not.
    pub fn rope_layer_types(&self) -> Result<Vec<String>, Error> {
        let parameters = self.object("rope_parameters")?;
        Ok(parameters.filter(Config::is_nested).map(|p| p.map.keys().cloned().collect()).unwrap_or_default())
    }

    fn rope_object(&self, layer_type: Option<&str>) -> Result<(String, Map<String, Value>), Error> {
        if let Some(parameters) = self.object("rope_parameters")? {
            if !parameters.is_nested() {
                return Ok(("rope_parameters".into(), parameters.map));
            }
            let kind = match (layer_type, parameters.map.keys().next()) {
                (Some(kind), _) => kind,
                (None, Some(only)) if parameters.map.len() == 1 => only,
                (None, _) => return Err(self.bad("rope_parameters", "differs by layer type, where one is wanted")),
            };
            let map = parameters.object(kind)?.map(|config| config.map).unwrap_or_default();
            return Ok((format!("rope_parameters.{kind}"), map));
        }
        let scaling = self.object("rope_scaling")?.map(|config| config.map).unwrap_or_default();
        Ok(("rope_scaling".into(), scaling))
    }

    /// Whether every field is an object (or `null`), one per layer type.
    fn is_nested(&self) -> bool {
        !self.map.is_empty()
            && self.map.values().any(Value::is_object)
            && self.map.values().all(|value| value.is_object() || value.is_null())
    }
}
