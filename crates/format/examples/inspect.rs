//! Lists what a checkpoint holds: `cargo run -p attend-format --example inspect -- PATH`.

use std::path::Path;

fn main() {
    for path in std::env::args().skip(1) {
        match attend_format::Checkpoint::open(Path::new(&path)) {
            Err(error) => println!("error ({}): {error}", error.kind()),
            Ok(checkpoint) => {
                println!("{path}: {:?}", checkpoint.kind());
                println!("{}", serde_json::to_string_pretty(checkpoint.config().map()).unwrap_or_default());
                for tensor in checkpoint.tensors().values() {
                    println!("{:48} {:8} {:?} {} bytes", tensor.name, tensor.dtype, tensor.shape, tensor.bytes);
                }
                for (name, tensor) in checkpoint.unreadable() {
                    println!("{name:48} {} (cannot be read) {:?}", tensor.dtype, tensor.shape);
                }
            }
        }
    }
}
