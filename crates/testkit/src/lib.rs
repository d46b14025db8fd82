//! What the tests of several crates share. Nothing here is part of the product.

pub mod files;
pub mod golden;
pub mod hostile;
pub mod memory;
