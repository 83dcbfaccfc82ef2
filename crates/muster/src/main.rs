//! `muster`: see the library.

use std::process::ExitCode;

/// A control plane holds thousands of connections for days: their buffers go back to the system
/// once they are free, and what was never touched is never there.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    muster::main()
}
