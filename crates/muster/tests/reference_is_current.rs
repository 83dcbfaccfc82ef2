//! OPS-1: docs/reference/cli.md says what the programs say. Written anew with
//! `MUSTER_BLESS=1 cargo test -p muster --test all reference_is_current`.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fmt::Write;
use std::path::Path;

use clap::{Command, CommandFactory};

const HEAD: &str = "# The command line

Made from the programs' own help; a test keeps it so. Every verb takes `--json`.

Exit codes: 0 done or nothing differs, 1 error, 2 differences, 3 some nodes or resources
failed, 4 the other side does not answer, 5 refused by policy.
";

#[test]
fn the_reference_is_what_the_programs_say() {
    let mut text = HEAD.to_owned();
    for command in [muster::args::Cli::command(), agent::verbs::Cli::command()] {
        // A fixed width, whatever terminal the test runs in.
        let mut command = command.term_width(96);
        command.build();
        describe(&mut text, &mut command, &mut Vec::new());
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/cli.md");
    if std::env::var_os("MUSTER_BLESS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == text, "docs/reference/cli.md is not current: MUSTER_BLESS=1 writes it anew");
}

fn describe(text: &mut String, command: &mut Command, above: &mut Vec<String>) {
    above.push(command.get_name().to_owned());
    let help = command.render_long_help().to_string();
    let marks = "#".repeat(above.len() + 1);
    writeln!(text, "\n{marks} {}\n\n```text", above.join(" ")).unwrap();
    for line in help.trim_end().lines() {
        writeln!(text, "{}", line.trim_end()).unwrap();
    }
    writeln!(text, "```").unwrap();
    for verb in command.get_subcommands_mut().filter(|verb| !verb.is_hide_set()) {
        describe(text, verb, above);
    }
    above.pop();
}
