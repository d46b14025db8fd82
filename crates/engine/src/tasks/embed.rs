//! Vectors of texts, as the model's folder says they are made.

use super::ability::Task;
use super::pack::Watch;
use super::pooling::{Pooling, normalize};
use super::reader::{Encoded, TaskModel, Text, each};
use super::sentence::{Module, Sentence};
use super::similarity::Similarity;
use super::sparse::Sparse;
use crate::error::Error;
use crate::variant::Variant;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a caller chooses over what the folder says.
#[derive(Debug, Clone, Default)]
pub struct EmbedOptions {
    pub pooling: Option<Pooling>,
    /// Scale vectors to length 1, or do not.
    pub normalize: Option<bool>,
    /// Keep the first elements only, for models trained so that they suffice (Kusupati et al. 2022); the vector is
    /// scaled to length 1 again where it was before.
    pub dimensions: Option<usize>,
    pub prompt: Prompt,
}

/// What stands in front of each text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Prompt {
    /// What the folder says for the text's role.
    #[default]
    Folder,
    /// One of the folder's prompts.
    Named(String),
    Text(String),
}

/// What a text is to the other texts; some models have a prompt for each role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Plain,
    Query,
    Document,
}

/// The vector of a text, or of each of its tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct Embedding {
    /// One vector, or one a token, end to end.
    pub values: Vec<f32>,
    /// Length of a vector.
    pub width: usize,
    /// Tokens of the text.
    pub tokens: usize,
    /// The text was cut.
    pub cut: bool,
}

/// A text made ready to be embedded, which may be done by another thread than the one that computes.
#[derive(Debug, Clone)]
pub struct Item {
    pub encoded: Encoded,
    /// Tokens of the prompt that take no part in pooling.
    skip: usize,
    /// As [`EmbedOptions::dimensions`].
    pub dimensions: Option<usize>,
    /// As [`EmbedOptions::normalize`].
    pub normalize: Option<bool>,
}

/// A model that makes vectors of texts.
#[derive(Debug)]
pub struct Embedder<'m> {
    model: TaskModel<'m>,
    sentence: Arc<Sentence>,
    options: EmbedOptions,
}

impl<'m> Embedder<'m> {
    /// # Errors
    /// Modules or poolings that are not known, prompts that do not exist.
    pub fn new(model: TaskModel<'m>, options: EmbedOptions) -> Result<Embedder<'m>, Error> {
        Task::Embed.check(model.model.spec())?;
        let mut sentence = Sentence::read(model.described)?;
        if let Some(pooling) = options.pooling {
            (sentence.pooling, sentence.notice) = (vec![pooling], None);
        }
        if let Prompt::Named(name) = &options.prompt
            && !sentence.prompts.contains_key(name)
        {
            let known: Vec<&str> = sentence.prompts.keys().map(String::as_str).collect();
            let known =
                if known.is_empty() { "the model has none".into() } else { format!("there are {}", known.join(", ")) };
            return Err(Error::parameter("prompt_name", name, known));
        }
        Ok(Embedder { model, sentence: Arc::new(sentence), options })
    }

    /// The same, computed by a variant of the model.
    ///
    /// # Errors
    /// A variant of a model of another description.
    pub fn of_variant(&self, variant: Option<Variant>) -> Result<Embedder<'m>, Error> {
        let model = self.model.clone().of_variant(variant)?;
        Ok(Embedder { model, sentence: Arc::clone(&self.sentence), options: self.options.clone() })
    }

    pub fn model(&self) -> &TaskModel<'m> {
        &self.model
    }

    /// What was assumed because no file says it.
    pub fn notice(&self) -> Option<&str> {
        self.sentence.notice.as_deref()
    }

    /// The measure that the model was trained for.
    pub fn similarity(&self) -> Similarity {
        self.sentence.similarity
    }

    /// How sparse vectors are made, for a model whose folder says that it makes them.
    pub fn sparse(&self) -> Option<Sparse> {
        self.sentence.sparse
    }

    /// Whether each token has its own vector.
    pub fn per_token(&self) -> bool {
        self.sentence.pooling.iter().any(|pooling| pooling.per_token())
    }

    /// The folder's prompts, by name.
    pub fn prompts(&self) -> &BTreeMap<String, String> {
        &self.sentence.prompts
    }

    /// The text that stands in front of texts of this role.
    pub fn prompt(&self, role: Role) -> &str {
        let named = |name: &str| self.sentence.prompts.get(name).map(String::as_str);
        let of_role: &[&str] = match role {
            Role::Plain => &[],
            Role::Query => &["query"],
            Role::Document => &["document", "passage", "corpus"],
        };
        match &self.options.prompt {
            Prompt::Text(text) => text,
            Prompt::Named(name) => named(name).unwrap_or_default(),
            Prompt::Folder => {
                // The default is for texts without a role: a role without a prompt of its own has none.
                let default = self.sentence.default_prompt.as_deref().filter(|_| role == Role::Plain);
                of_role.iter().copied().chain(default).find_map(named).unwrap_or_default()
            }
        }
    }

    /// The vectors of texts, in their order.
    ///
    /// # Errors
    /// Texts that are too long or have no tokens (the error says which), and dimensions that the vectors have not.
    pub fn embed(&self, texts: &[&str], role: Role, watch: &mut Watch<'_>) -> Result<Vec<Embedding>, Error> {
        let items = self.items(texts, role)?;
        let found = self.vectors(&items, watch)?.into_iter().enumerate();
        found.map(|(index, vector)| vector.map_err(|source| source.of_input(index))).collect()
    }

    /// Texts made ready: with their prompt in front, as tokens, held to the limit.
    ///
    /// # Errors
    /// Texts that are too long or have no tokens; the error says which.
    pub fn items(&self, texts: &[&str], role: Role) -> Result<Vec<Item>, Error> {
        self.items_behind(self.prompt(role), texts)
    }

    /// The same with a prompt of the caller's.
    ///
    /// # Errors
    /// As [`Embedder::items`].
    pub fn items_behind(&self, prompt: &str, texts: &[&str]) -> Result<Vec<Item>, Error> {
        let prompted: Vec<String> = texts.iter().map(|text| format!("{prompt}{text}")).collect();
        let prompted: Vec<Text<'_>> = prompted.iter().map(|text| Text::one(text)).collect();
        let encoded = each(&prompted, |text| self.model.encode(text, false))?;
        let skip = self.prompt_tokens(prompt)?;
        let EmbedOptions { dimensions, normalize, .. } = self.options;
        Ok(encoded.into_iter().map(|encoded| Item { encoded, skip, dimensions, normalize }).collect())
    }

    /// A text that is given as tokens, which stand for themselves: nothing is put in front of them or around them.
    ///
    /// # Errors
    /// As [`TaskModel::encode_ids`].
    pub fn item_of(&self, ids: Vec<u32>) -> Result<Item, Error> {
        let EmbedOptions { dimensions, normalize, .. } = self.options;
        Ok(Item { encoded: self.model.encode_ids(ids)?, skip: 0, dimensions, normalize })
    }

    /// The vectors of texts that were made ready, in their order. One that has none leaves the others theirs.
    ///
    /// # Errors
    /// A model that cannot compute, and work that was cancelled.
    pub fn vectors(&self, items: &[Item], watch: &mut Watch<'_>) -> Result<Vec<Result<Embedding, Error>>, Error> {
        let references: Vec<&Encoded> = items.iter().map(|item| &item.encoded).collect();
        self.model.each_input(&references, watch, &mut |index, rows| {
            let Some(item) = items.get(index) else { return Err(Error::EmptyInput) };
            let (tokens, cut) = (item.encoded.encoding.len(), item.encoded.cut);
            let vector = self.vector(rows, item);
            Ok(vector.map(|(values, width)| Embedding { values, width, tokens, cut }))
        })
    }

    /// Tokens of the prompt that take no part in pooling.
    fn prompt_tokens(&self, prompt: &str) -> Result<usize, Error> {
        if self.sentence.include_prompt || prompt.is_empty() {
            return Ok(0);
        }
        let encoding = self.model.encode(Text::one(prompt), false)?.encoding;
        // The token that ends a text comes after the text, not after the prompt.
        let ended = encoding.special.last().is_some_and(Option::is_some);
        Ok(encoding.len() - usize::from(ended))
    }

    /// The vectors that come of a text's rows [T, D], and their width.
    fn vector(&self, rows: &[f32], item: &Item) -> Result<(Vec<f32>, usize), Error> {
        let width = self.model.width();
        let mut pooled = Vec::new();
        for pooling in &self.sentence.pooling {
            pooling.pool(rows, width, item.skip, &mut pooled);
        }
        if !self.per_token() {
            let vector = self.after(pooled, item)?;
            let width = vector.len();
            return Ok((vector, width));
        }
        // The folder's modules are for the vector of a text.
        let row = |row: &[f32]| self.finish(row.to_vec(), false, item);
        let vectors: Vec<Vec<f32>> = pooled.chunks_exact(width).map(row).collect::<Result<_, Error>>()?;
        let width = vectors.first().map_or(width, Vec::len);
        Ok((vectors.concat(), width))
    }

    /// What follows pooling.
    fn after(&self, mut vector: Vec<f32>, item: &Item) -> Result<Vec<f32>, Error> {
        for module in &self.sentence.modules {
            match (module, item.normalize) {
                (Module::Normalize, Some(false)) => {}
                _ => vector = module.apply(vector)?,
            }
        }
        let normalized = self.sentence.modules.iter().any(|module| matches!(module, Module::Normalize));
        self.finish(vector, normalized, item)
    }

    /// The cut to the first dimensions, and length 1 where that is wanted or was so before.
    fn finish(&self, mut vector: Vec<f32>, normalized: bool, item: &Item) -> Result<Vec<f32>, Error> {
        if let Some(dimensions) = item.dimensions {
            if dimensions == 0 || dimensions > vector.len() {
                let most = format!("the model's vectors have {} numbers", vector.len());
                return Err(Error::parameter("dimensions", dimensions, most));
            }
            vector.truncate(dimensions);
        }
        if item.normalize.unwrap_or(normalized) {
            normalize(&mut vector);
        }
        super::finite(&vector)?;
        Ok(vector)
    }
}
