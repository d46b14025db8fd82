//! What can be wrong with a batch handed to a model.

use thiserror::Error;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Error {
    #[error("token_ids[{index}] is {id}, but the model's vocabulary has {vocab} tokens")]
    Token { index: usize, id: u32, vocab: usize },
    #[error("token_type_ids[{index}] is {id}, but the model has {types} token types")]
    TokenType { index: usize, id: u32, types: usize },
    #[error("position {position} is beyond the model's last one, {last}")]
    Position { position: usize, last: usize },
    #[error("{field} has {found} entries for {expected} tokens")]
    Length { field: &'static str, expected: usize, found: usize },
    #[error("sequence {sequence} is empty")]
    Empty { sequence: usize },
    #[error("sequence {sequence} has no token {id}, at which the head reads")]
    NoSuchToken { sequence: usize, id: u32 },
    #[error("`{name}` is not a weight or a layer of this model")]
    UnknownWeight { name: String },
    #[error("`{name}` should be {expected:?} and is {found:?}")]
    Shape { name: String, expected: Vec<usize>, found: Vec<usize> },
    #[error("the model has no {0}")]
    Missing(&'static str),
    #[error("sequences with adapters of their own cannot be taken together by a model with {0}")]
    Adapters(&'static str),
    #[error("the cache's {field} type {found} does not hold rows of {width} elements")]
    CacheType { field: &'static str, found: String, width: usize },
}
