//! `attend verify`: golden cases through the real loader.

use crate::cli::verify::VerifyArgs;

/// Runs every case below the given paths; true when none failed.
pub fn run(_args: &VerifyArgs) -> anyhow::Result<bool> {
    anyhow::bail!("verification is not part of this build")
}
