//! Writes the man pages and completion of each program below `DIR/PROGRAM`.

use std::path::Path;
use std::process::ExitCode;
use std::{fs, io};

fn main() -> ExitCode {
    let Some(dir) = std::env::args_os().nth(1) else {
        eprintln!("usage: manual DIR");
        return ExitCode::FAILURE;
    };
    match write(Path::new(&dir)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("manual: the pages cannot be written: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write(dir: &Path) -> io::Result<()> {
    for program in manual::programs() {
        let below = dir.join(program.get_name());
        for file in manual::of(program)? {
            let path = below.join(&file.path);
            fs::create_dir_all(path.parent().unwrap_or(&below))?;
            fs::write(path, &file.text)?;
        }
    }
    Ok(())
}
