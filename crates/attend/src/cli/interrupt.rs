//! Ctrl-C: work that can end cleanly asks whether it should; everything else ends at once.

use std::sync::atomic::{AtomicBool, Ordering};

static PRESSED: AtomicBool = AtomicBool::new(false);
static GRACEFUL: AtomicBool = AtomicBool::new(false);

/// Installs the handler. Where the system refuses one, Ctrl-C keeps its usual meaning.
pub fn install() {
    let _ = ctrlc::set_handler(|| {
        let first = !PRESSED.swap(true, Ordering::SeqCst);
        if !(first && GRACEFUL.load(Ordering::SeqCst)) {
            // A progress bar may hold the line.
            eprintln!();
            std::process::exit(130);
        }
    });
}

/// While this lives, the first Ctrl-C only sets [`pressed`].
#[derive(Debug)]
pub struct Graceful(());

impl Graceful {
    pub fn begin() -> Graceful {
        PRESSED.store(false, Ordering::SeqCst);
        GRACEFUL.store(true, Ordering::SeqCst);
        Graceful(())
    }
}

impl Drop for Graceful {
    fn drop(&mut self) {
        GRACEFUL.store(false, Ordering::SeqCst);
        PRESSED.store(false, Ordering::SeqCst);
    }
}

/// Whether Ctrl-C was pressed since the current [`Graceful`] began.
pub fn pressed() -> bool {
    PRESSED.load(Ordering::SeqCst)
}
