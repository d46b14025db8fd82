//! The parts of a transformer, the layer made of them, the walk through the layers, and the observers that may watch.

pub mod names;
pub mod spec;
