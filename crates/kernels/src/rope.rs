//! Rotary position embedding (Su et al. 2021).

/// Which elements of a head turn together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Pairing {
    /// Element `i` turns with element `i + dim/2` (Llama, NeoX).
    Halves,
    /// Element `2i` turns with element `2i + 1` (GPT-J, Cohere).
    Interleaved,
}
