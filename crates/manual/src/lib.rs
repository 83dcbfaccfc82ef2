//! Man pages and shell completion of both programs, made from their commands (OPS-6).
//!
//! ```text
//! muster::args::Cli ──┐              ┌─▶ PROGRAM[-VERB...].1        one for each verb
//!                     ├─▶ clap trees ┤
//! agent::verbs::Cli ──┘              └─▶ bash, zsh, fish            one for each program
//! ```
//!
//! The programs themselves hold nothing of this: `cargo xtask dist` runs this crate's program.
//! Files are for a package: their paths are those below its root.

use std::io;

use clap::builder::Resettable;
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

/// A file of a package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManualFile {
    /// Where the package puts it, below the root.
    pub path: String,
    /// Its text.
    pub text: Vec<u8>,
}

/// Both programs' commands.
pub fn programs() -> [Command; 2] {
    [muster::args::Cli::command(), agent::verbs::Cli::command()]
}

/// The program's man pages, one for each verb that its help shows, and its completion for each
/// shell.
///
/// # Errors
/// When a page cannot be rendered.
pub fn of(program: Command) -> io::Result<Vec<ManualFile>> {
    let mut files = completions(program.clone());
    // `help` explains codes too, so clap's own is not wanted where the program brings one.
    let mut program = program.disable_help_subcommand(true);
    program.build();
    pages(&program, &mut files)?;
    Ok(files)
}

fn pages(command: &Command, files: &mut Vec<ManualFile>) -> io::Result<()> {
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        pages(verb, files)?;
    }
    let source = format!("Muster {}", env!("CARGO_PKG_VERSION"));
    let page = Man::new(command.clone().after_help(Resettable::Reset).after_long_help(Resettable::Reset));
    let page = page.source(source).manual("Muster");
    let path = format!("usr/share/man/man1/{}", page.get_filename());
    let mut text = Vec::new();
    page.render(&mut text)?;
    text.extend_from_slice(notes(command).as_bytes());
    files.push(ManualFile { path, text });
    Ok(())
}

/// What help says after the options: paragraphs are filled, examples and tables stay as they are.
fn notes(command: &Command) -> String {
    let Some(notes) = command.get_after_long_help().or_else(|| command.get_after_help()) else {
        return String::new();
    };
    let mut roff = Roff::new();
    roff.control("SH", ["NOTES"]);
    let mut filled = true;
    for line in notes.to_string().lines() {
        let fills = !line.starts_with(' ') && !line.contains("   ");
        if fills != filled {
            roff.control(if fills { "fi" } else { "nf" }, []);
        }
        filled = fills;
        match line {
            "" => roff.control("PP", []),
            line => roff.text([roman(line)]),
        };
    }
    roff.to_roff()
}

fn completions(mut program: Command) -> Vec<ManualFile> {
    let name = program.get_name().to_owned();
    let shells = [
        (Shell::Bash, format!("usr/share/bash-completion/completions/{name}")),
        (Shell::Zsh, format!("usr/share/zsh/vendor-completions/_{name}")),
        (Shell::Fish, format!("usr/share/fish/vendor_completions.d/{name}.fish")),
    ];
    let mut made = |(shell, path)| {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut program, name.as_str(), &mut text);
        ManualFile { path, text }
    };
    shells.map(&mut made).into()
}
