//! Collecting mistakes: bounded, ordered, each with its position.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lang::{Diagnostic, Diagnostics, Label, SourceSpan};

use crate::yaml::At;

/// The most mistakes that one check shows.
pub const MAX_SHOWN: usize = 200;

/// Codes after which something that the file declares may be missing from what was read.
const HIDING: [&str; 17] = [
    "E001", "E002", "E003", "E004", "E005", "E006", "E007", "E008", "E009", "E010", "E012", "E013", "E014",
    "E023", "E024", "E049", "E070",
];

/// Mistakes in one file, at most [`MAX_SHOWN`] of them; the rest are counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileSink {
    file: Arc<str>,
    found: Vec<Diagnostic>,
    more: usize,
}

/// The mistake just reported, to add help and labels to.
pub(crate) struct Added<'s>(Option<&'s mut Diagnostic>);

impl FileSink {
    pub(crate) fn new(file: &str) -> FileSink {
        FileSink { file: file.into(), ..FileSink::default() }
    }

    /// Reports a mistake at a position of this file.
    pub(crate) fn error(&mut self, code: &'static str, at: At, message: impl Into<String>) -> Added<'_> {
        let span = span(&self.file, at);
        self.push(code, Some(span), message.into())
    }

    /// Reports a mistake of the whole file.
    pub(crate) fn whole_file(&mut self, code: &'static str, message: impl Into<String>) -> Added<'_> {
        self.error(code, At { line: 1, column: 1, len: 1 }, message)
    }

    fn push(&mut self, code: &'static str, span: Option<SourceSpan>, message: String) -> Added<'_> {
        let reported =
            |known: &Diagnostic| known.code == code && known.span == span && known.message == message;
        if self.found.iter().any(reported) {
            return Added(None);
        }
        if self.found.len() >= MAX_SHOWN {
            self.more += 1;
            return Added(None);
        }
        self.found.push(Diagnostic { code, message, span, help: None, labels: Vec::new() });
        Added(self.found.last_mut())
    }

    /// How many mistakes there are so far.
    pub(crate) fn count(&self) -> usize {
        self.found.len() + self.more
    }

    /// Something that the file declares may be missing from what was read of it.
    pub(crate) fn hides(&self) -> bool {
        self.found.iter().any(|found| HIDING.contains(&found.code))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }
}

impl Added<'_> {
    /// What would be right.
    pub(crate) fn help(mut self, text: impl Into<String>) -> Self {
        if let Some(diagnostic) = &mut self.0 {
            diagnostic.help = Some(text.into());
        }
        self
    }

    /// The same, if there is something to say.
    pub(crate) fn maybe_help(self, text: Option<String>) -> Self {
        match text {
            Some(text) => self.help(text),
            None => self,
        }
    }

    /// Another position of the same file.
    pub(crate) fn label(mut self, at: At, text: impl Into<String>) -> Self {
        if let Some(diagnostic) = &mut self.0
            && let Some(file) = diagnostic.span.as_ref().map(|span| span.file.clone())
        {
            diagnostic.labels.push(Label { span: span(&file, at), text: text.into() });
        }
        self
    }

    /// Another position, in any file.
    pub(crate) fn label_in(mut self, file: &str, at: At, text: impl Into<String>) -> Self {
        if let Some(diagnostic) = &mut self.0 {
            diagnostic.labels.push(Label { span: span(&file.into(), at), text: text.into() });
        }
        self
    }
}

/// Mistakes over many files. Two that say the same of one position are one.
#[derive(Default)]
pub(crate) struct Sink {
    files: BTreeMap<Arc<str>, FileSink>,
    general: Vec<Diagnostic>,
    read: Vec<FileSink>,
}

impl Sink {
    /// Reports a mistake at a position.
    pub(crate) fn error(
        &mut self,
        file: &str,
        code: &'static str,
        at: At,
        message: impl Into<String>,
    ) -> Added<'_> {
        self.file(file).error(code, at, message)
    }

    /// The part of the sink that is one file's.
    pub(crate) fn file(&mut self, file: &str) -> &mut FileSink {
        self.files.entry(file.into()).or_insert_with(|| FileSink::new(file))
    }

    /// Reports a mistake that no position is to blame for.
    pub(crate) fn general(&mut self, code: &'static str, message: impl Into<String>, help: &str) {
        let help = Some(help.to_owned());
        self.general.push(Diagnostic { code, message: message.into(), span: None, help, labels: Vec::new() });
    }

    /// The files that have mistakes; `None` where no file is to blame for one.
    pub(crate) fn mistaken(&self) -> Option<BTreeSet<Arc<str>>> {
        let found = self.files.values().chain(&self.read).filter(|found| !found.is_empty());
        self.general.is_empty().then(|| found.map(|found| found.file.clone()).collect())
    }

    /// Takes in what reading a file found.
    pub(crate) fn take(&mut self, found: &FileSink) {
        if !found.is_empty() {
            self.read.push(found.clone());
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.general.is_empty() && self.read.is_empty() && self.files.values().all(FileSink::is_empty)
    }

    /// All of it in the order of files and lines, at most [`MAX_SHOWN`]; if there are more,
    /// a last one says how many.
    pub(crate) fn finish(self) -> Diagnostics {
        let (mut list, mut more) = (self.general, 0);
        for part in self.files.into_values().chain(self.read) {
            list.extend(part.found);
            more += part.more;
        }
        list.sort_by(|a, b| (&a.span, a.code, &a.message).cmp(&(&b.span, b.code, &b.message)));
        list.dedup_by(|a, b| a.span == b.span && a.code == b.code && a.message == b.message);
        more += list.len().saturating_sub(MAX_SHOWN);
        list.truncate(MAX_SHOWN);
        if more > 0 {
            list.push(Diagnostic {
                code: "E099",
                message: format!("{more} more mistakes are not shown"),
                span: None,
                help: Some("repair these first".into()),
                labels: Vec::new(),
            });
        }
        list
    }
}

pub(crate) fn span(file: &Arc<str>, at: At) -> SourceSpan {
    SourceSpan { file: file.clone(), line: at.line.max(1), column: at.column.max(1), len: at.len.max(1) }
}
