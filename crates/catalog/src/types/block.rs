//! `block`: a block of lines between markers in a text file.

use std::collections::BTreeMap;

use lang::Value;
use model::Fields;

use super::FileContent;
use super::edited::{CREATE, VALIDATE};
use super::{EditedFile, Ensure, FILE_TIMEOUT_SECS, GROUP, MODE, OWNER, STATE, Spec, StateSpec};
use crate::module::OnRemove::{Delete, Keep, Restore};
use crate::schema::{
    Attribute, AttributeProblem, FieldKind, Manages, ResourceAttributes, ResourceType, Short, is_absent,
};

/// The longest content of a block, in bytes: what is longer is a file of its own.
const MAX_BLOCK: usize = 64 * 1024;
/// What the markers' lines say before the block's name.
pub const BLOCK_BEGIN: &str = "BEGIN MUSTER BLOCK";
/// See [`BLOCK_BEGIN`].
pub const BLOCK_END: &str = "END MUSTER BLOCK";

/// The declaration.
pub(super) static TYPE: ResourceType = ResourceType {
    name: "block",
    summary: "A block of lines in a text file, between two marker lines that hold its name. Every other byte \
              of the file is kept. Markers that were broken by hand are an error that names their lines.",
    short: Short::Name,
    attributes: &[
        STATE,
        Attribute::always("path", FieldKind::Path, "the file"),
        Attribute::new("content", FieldKind::Text, "", "the lines, inline; `${{ }}` is evaluated"),
        Attribute::new(
            "template",
            FieldKind::Template,
            "",
            "the lines, from a template of the module; sees params, vars, traits, node",
        ),
        Attribute::new(
            "comment",
            FieldKind::Line,
            "#",
            "what begins a comment of this file, for the markers",
        ),
        Attribute::new("comment_end", FieldKind::Line, "", "what ends a comment, such as `-->`"),
        Attribute::new(
            "after",
            FieldKind::Regex,
            "",
            "a new block goes after the last line that matches, else at the end",
        ),
        Attribute::new(
            "insert_before",
            FieldKind::Regex,
            "",
            "a new block goes before the last line that matches, else at the end",
        ),
        CREATE,
        VALIDATE,
        MODE,
        OWNER,
        GROUP,
    ],
    timeout_secs: FILE_TIMEOUT_SECS,
    on_remove: &[Keep, Delete, Restore],
    handler: false,
    guarded: false,
    example: "- block: limits\n  path: /etc/security/limits.conf\n  content: |\n    app soft nofile 65536\n    \
              app hard nofile 65536\n  create: true\n",
    manages: Manages::State,
    removal: &["path", "comment", "comment_end", "mode", "owner", "group"],
    rules,
    bind,
};

/// `block`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockSpec {
    /// Its name, which the markers hold.
    pub name: String,
    /// Present or absent.
    pub ensure: Ensure,
    /// The file.
    pub file: EditedFile,
    /// Its lines, joined by newlines, without the last newline.
    pub content: String,
    /// What begins a comment.
    pub comment: String,
    /// What ends a comment; may be empty.
    pub comment_end: String,
    /// Where a new block goes.
    pub place: BlockPosition,
}

/// Where a new block goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockPosition {
    /// To the end of the file.
    End,
    /// After the last line that matches, else to the end.
    After(String),
    /// Before the last line that matches, else to the end.
    Before(String),
}

impl StateSpec for BlockSpec {
    fn ensure(&self) -> Ensure {
        self.ensure
    }

    fn declared(&self) -> Fields {
        let mut fields = Fields::from([
            ("content".to_owned(), self.content.clone()),
            ("comment".to_owned(), self.comment.clone()),
        ]);
        self.file.declare(&mut fields);
        fields
    }

    fn edited_file(&self) -> Option<&EditedFile> {
        Some(&self.file)
    }
}

fn rules(attributes: &BTreeMap<String, Value>) -> Vec<AttributeProblem> {
    let has = |name: &str| attributes.contains_key(name);
    let mut found = Vec::new();
    if has("content") && has("template") {
        let message = "`content` and `template` both say what the block holds".to_owned();
        found.push(AttributeProblem::conflict("template", message, "keep one of them"));
    }
    if has("after") && has("insert_before") {
        let message = "`after` and `insert_before` both say where the block goes".to_owned();
        found.push(AttributeProblem::conflict("insert_before", message, "keep one of them"));
    }
    if !is_absent(attributes) && !has("content") && !has("template") {
        let help = "add `content:` or `template:`";
        found.push(AttributeProblem::missing(None, "`block` needs `content` or `template`".to_owned(), help));
    }
    found
}

fn bind(given: &ResourceAttributes<'_>) -> Result<Spec, String> {
    let name = given.name();
    let marks = |text: &str| text.contains(BLOCK_BEGIN) || text.contains(BLOCK_END);
    if name.is_empty() || name.trim() != name || name.contains(char::is_control) || marks(&name) {
        return Err(format!("`{name}` cannot be a block's name: it stands in the marker lines"));
    }
    let content = match given.content()? {
        Some(FileContent::Text { text, .. }) => lines(&text),
        Some(FileContent::Bytes { .. } | FileContent::Blob { .. }) | None => String::new(),
    };
    if content.len() > MAX_BLOCK {
        return Err(format!("a block has at most {MAX_BLOCK} bytes; declare a `file`"));
    }
    if marks(&content) {
        return Err(format!("its content holds `{BLOCK_BEGIN}` or `{BLOCK_END}`, which mark blocks"));
    }
    let place = match (given.text("after"), given.text("insert_before")) {
        (Some(after), _) => BlockPosition::After(after),
        (None, Some(before)) => BlockPosition::Before(before),
        (None, None) => BlockPosition::End,
    };
    Ok(Spec::Block(BlockSpec {
        name,
        ensure: given.ensure(),
        file: EditedFile::read(given),
        content,
        comment: given.text("comment").unwrap_or_else(|| "#".to_owned()).trim().to_owned(),
        comment_end: given.text_or_empty("comment_end").trim().to_owned(),
        place,
    }))
}

/// A text as lines without what ends them, joined by newlines.
fn lines(text: &str) -> String {
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.split('\n').map(|line| line.trim_end_matches('\r')).collect::<Vec<_>>().join("\n")
}
