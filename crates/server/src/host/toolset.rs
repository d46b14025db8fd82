//! The tasks of a model, or of one of its adapters.

use super::tools::Tools;
use crate::failure::Failure;
use attend_engine::tasks::embed::{EmbedOptions, Embedder};
use attend_engine::tasks::rerank::{Reranker, is_cross_encoder};
use attend_engine::tasks::{Task, TaskModel};
use attend_engine::{Engine, Variant};
use attend_text::Render;

/// A model's tools, with what computes in its place.
#[derive(Clone)]
pub struct Toolset<'t> {
    pub tools: &'t Tools<'t>,
    pub variant: Option<Variant>,
}

impl<'t> Toolset<'t> {
    /// As [`Tools::reader`].
    ///
    /// # Errors
    /// A model that has not the parts for the task.
    pub fn reader(&self, task: Task, truncate: bool) -> Result<TaskModel<'t>, Failure> {
        Ok(self.tools.reader(task, truncate)?.of_variant(self.variant.clone())?)
    }

    /// What ranks documents: a cross-encoder, or a comparison of vectors.
    ///
    /// # Errors
    /// A model that cannot.
    pub fn reranker(&self, raw: bool, truncate: bool) -> Result<Reranker<'t>, Failure> {
        let model = self.reader(Task::Rerank, truncate)?;
        if is_cross_encoder(self.tools.parts.loaded.model.spec()) {
            return Ok(Reranker::cross(model, raw)?);
        }
        Ok(Reranker::Vectors(Box::new(Embedder::new(model, EmbedOptions::default())?)))
    }

    /// As [`Tools::engine`].
    ///
    /// # Errors
    /// A model that writes no text.
    pub fn engine(&self) -> Result<&'t Engine<'t>, Failure> {
        self.tools.engine()
    }

    /// As [`Tools::conversation`].
    ///
    /// # Errors
    /// A model without a chat template, and what its template refuses.
    pub fn conversation(&self, request: &Render) -> Result<(Vec<u32>, bool), Failure> {
        self.tools.conversation(request)
    }
}
