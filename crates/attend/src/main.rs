//! The `attend` program.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    attend::cli::main()
}
