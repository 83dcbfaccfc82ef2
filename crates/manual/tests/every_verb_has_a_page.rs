//! OPS-6: every verb that a program's help shows has a man page, which says what its help says,
//! and every shell completes it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet};

use clap::Command;
use manual::ManualFile;

/// The words of each command that help shows, the program's own first.
fn commands(command: &Command, above: &[String]) -> Vec<(Vec<String>, Command)> {
    let words: Vec<String> = above.iter().cloned().chain([command.get_name().to_owned()]).collect();
    let shown = command.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help");
    let below: Vec<_> = shown.flat_map(|verb| commands(verb, &words)).collect();
    [(words, command.clone())].into_iter().chain(below).collect()
}

fn made() -> Vec<(Command, BTreeMap<String, String>)> {
    let text = |file: ManualFile| (file.path, String::from_utf8(file.text).unwrap());
    let of = |program: Command| {
        let files = manual::of(program.clone()).unwrap().into_iter().map(text).collect();
        (program, files)
    };
    manual::programs().map(of).into()
}

#[test]
fn every_verb_has_a_page_that_describes_it() {
    let mut seen = BTreeSet::new();
    for (program, files) in made() {
        for (words, command) in commands(&program, &[]) {
            let path = format!("usr/share/man/man1/{}.1", words.join("-"));
            let page = files.get(&path).unwrap_or_else(|| panic!("no page for `{}`", words.join(" ")));
            let page = page.replace("\\-", "-").replace("\\*(Aq", "'");
            let about = command.get_about().unwrap().to_string();
            assert!(page.contains(&about), "{path} does not say {about:?}");
            for option in command.get_arguments().filter_map(|arg| arg.get_long()) {
                assert!(page.contains(&format!("--{option}")), "{path} does not name --{option}");
            }
            for variable in command.get_arguments().filter_map(|arg| arg.get_env()?.to_str()) {
                assert!(page.contains(variable), "{path} does not name {variable}");
            }
            for line in command.get_after_help().map(ToString::to_string).unwrap_or_default().lines() {
                assert!(page.contains(line), "{path} does not say {line:?}");
            }
            assert!(seen.insert(path), "two pages for `{}`", words.join(" "));
        }
    }
    // Both programs and their verbs, or nothing above was looked at.
    assert!(seen.len() > 40, "{seen:?}");
}

#[test]
fn programs_share_no_file() {
    let all: Vec<String> = made().into_iter().flat_map(|(_, files)| files.into_keys()).collect();
    let distinct: BTreeSet<&String> = all.iter().collect();
    assert_eq!(distinct.len(), all.len());
}

#[test]
fn every_shell_completes_every_verb() {
    for (program, files) in made() {
        let name = program.get_name();
        for path in [
            format!("usr/share/bash-completion/completions/{name}"),
            format!("usr/share/zsh/vendor-completions/_{name}"),
            format!("usr/share/fish/vendor_completions.d/{name}.fish"),
        ] {
            let text = &files[&path];
            for verb in program.get_subcommands().filter(|verb| !verb.is_hide_set()) {
                assert!(text.contains(verb.get_name()), "{path} does not complete {}", verb.get_name());
            }
        }
    }
}
