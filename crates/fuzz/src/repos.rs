//! Fleet repos and manifests, and the languages in them.

use backends::manifest::{self, Format};
use lang::{Expr, InterpolatedText, Pattern, Selector, Template};
use resolve::{RepoFile, Tree};

use crate::text;

/// What stands before the path of each file of a repo but the first, which is `fleet.yaml`.
const FILE: &str = "\n#### ";

/// Several files in one text.
pub(crate) fn fleet_repo(data: &[u8]) {
    let mut tree = Tree::default();
    for (at, part) in text(data).split(FILE).take(16).enumerate() {
        let (path, content) =
            if at == 0 { ("fleet.yaml", part) } else { part.split_once('\n').unwrap_or((part, "")) };
        tree.files.insert(path.to_owned(), RepoFile::from(content.as_bytes().to_vec()));
    }
    let _ = resolve::check(&tree);
}

pub(crate) fn manifest(data: &[u8]) {
    for format in [Format::Yaml, Format::Json] {
        let _ = manifest::mistakes(data, format);
        for read in manifest::read(data, format).into_iter().flatten() {
            assert!(
                manifest::identify(&read.key, &read.spec).is_ok(),
                "a manifest that was read is of its key"
            );
        }
    }
    let _ = manifest::read_status(data);
}

pub(crate) fn expression(data: &[u8]) {
    if let Ok(expression) = Expr::parse(text(data)) {
        let _ = expression.names();
    }
    let _ = InterpolatedText::parse(text(data));
}

pub(crate) fn template(data: &[u8]) {
    if let Ok(template) = Template::parse("fuzz", text(data)) {
        let _ = (template.names(), template.uses());
    }
}

pub(crate) fn selector(data: &[u8]) {
    if let Ok(selector) = Selector::parse(text(data)) {
        let again = Selector::parse(selector.as_str());
        assert_eq!(again.as_ref(), Ok(&selector), "a selector is what it is written as");
    }
}

pub(crate) fn pattern(data: &[u8]) {
    if let Ok(pattern) = Pattern::parse(text(data)) {
        let _ = (pattern.prefix(), pattern.matches("web-1.example.com"), pattern.matches(pattern.as_str()));
    }
}
