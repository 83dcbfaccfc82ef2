//! OPS-1: each command that the README and a page of `docs/` name in a sentence or a table is one of
//! the program's, with the options that it has (`docs/reference/cli.md`, which is made from the program).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The reference's sections by the commands that they are of.
fn sections(reference: &str) -> BTreeMap<String, String> {
    let mut sections = BTreeMap::new();
    for section in reference.split("\n##").skip(1) {
        let (title, text) = section.trim_start_matches('#').split_once('\n').unwrap();
        sections.insert(title.trim().to_owned(), text.to_owned());
    }
    sections
}

/// What stands in backquotes on one line, outside of fences.
fn spans(page: &str) -> Vec<&str> {
    let mut is_fenced = false;
    let mut found = Vec::new();
    for line in page.lines() {
        is_fenced ^= line.trim_start().starts_with("```");
        if !is_fenced && line.matches('`').count() % 2 == 0 {
            found.extend(line.split('`').skip(1).step_by(2));
        }
    }
    found
}

/// What is wrong with a command.
fn mistake(command: &str, sections: &BTreeMap<String, String>) -> Option<String> {
    let words: Vec<&str> = command.split(' ').take_while(|word| *word != "--").collect();
    let is_verb = |word: &&str| word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
    let verbs: Vec<&str> =
        words[1..].iter().copied().take_while(|word| is_verb(word) && !word.starts_with('-')).collect();
    let name = |count: usize| [&words[..1], &verbs[..count]].concat().join(" ");
    let known = (0..=verbs.len()).rev().map(name).find(|name| sections.contains_key(name))?;
    let has_verb = verbs.is_empty() || known != words[0];
    if !has_verb {
        return Some(format!("`{command}`: there is no `{}`", verbs[0]));
    }
    let text = &sections[&known];
    let options = words.iter().filter_map(|word| word.strip_prefix("--"));
    let named = options.map(|option| option.split(['=', ',', ';']).next().unwrap_or_default());
    let unknown = |option: &&str| !text.contains(&format!("--{option}"));
    named
        .filter(|option| !option.is_empty())
        .find(unknown)
        .map(|option| format!("`{command}`: `{known}` has no --{option}"))
}

#[test]
fn each_command_of_a_page_is_there_with_its_options() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let sections = sections(&std::fs::read_to_string(top.join("docs/reference/cli.md")).unwrap());
    assert!(sections.contains_key("muster node run") && sections.contains_key("muster-agent apply"));
    let mut pages = vec![top.join("README.md"), top.join("docs/reference/fleet-repo.md")];
    let docs = std::fs::read_dir(top.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    // The roadmap names what is not there yet.
    let is_page = |path: &PathBuf| {
        path.extension().is_some_and(|extension| extension == "md") && !path.ends_with("roadmap.md")
    };
    pages.extend(docs.filter(is_page));
    let (mut mistakes, mut seen) = (Vec::new(), 0);
    for page in &pages {
        let text = std::fs::read_to_string(page).unwrap();
        for span in spans(&text)
            .into_iter()
            .filter(|span| span.starts_with("muster ") || span.starts_with("muster-agent "))
        {
            seen += 1;
            mistakes.extend(mistake(span, &sections).map(|what| format!("{}: {what}", page.display())));
        }
    }
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
    assert!(seen > 60, "only {seen} commands were found");
}

/// What is printed as a next step gets the credentials that were named: each verb that takes them is known.
#[test]
fn each_verb_that_takes_credentials_is_known_to_next_steps() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let sections = sections(&std::fs::read_to_string(top.join("docs/reference/cli.md")).unwrap());
    let takes = |(name, text): (&String, &String)| {
        let verb = name.strip_prefix("muster ").filter(|verb| !verb.contains(' '))?;
        text.contains("--operator <FILE>").then(|| verb.to_owned())
    };
    // Its operator's port is its own.
    let taking: Vec<String> = sections.iter().filter_map(takes).filter(|verb| verb != "proxy").collect();
    assert_eq!(taking, cli::next_step::ASKING_VERBS);
}
