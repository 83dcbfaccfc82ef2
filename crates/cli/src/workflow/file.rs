//! A workflow's file, in YAML or JSON.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use backends::manifest::{self, Format, MAX_FILE, ReadManifestError};
use plane::work::{WorkflowError, WorkflowSpec};
use serde_json::Value;

use crate::failure::UserError;

/// What the reader of manifests wants to see, put before the file: a workflow is none, but
/// is written in the same notation, and its reader's lines and refusals serve here too.
const HEAD: &str = "kind: Workflow\nmetadata: {name: workflow}\n";
/// How many lines that is.
const HEAD_LINES: u32 = 2;

/// Why a file holds no workflow.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("cannot read {}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is larger than a file may be.
    #[error("{} is larger than {MAX_FILE} bytes", .0.display())]
    TooLarge(PathBuf),
    /// It is neither YAML nor JSON.
    #[error("{file}{}: {}", line.map(|line| format!(":{line}")).unwrap_or_default(), problem)]
    Notation {
        /// The file.
        file: String,
        /// The line, from 1.
        line: Option<u32>,
        /// What is wrong.
        problem: String,
    },
    /// It says something else than a workflow.
    #[error("{file} is no workflow")]
    Shape {
        /// The file.
        file: String,
        /// What is wrong.
        #[source]
        source: serde_json::Error,
    },
    /// It says a workflow that cannot be begun.
    #[error("the workflow in {file} cannot be begun")]
    Workflow {
        /// The file.
        file: String,
        /// What is wrong.
        #[source]
        source: WorkflowError,
    },
}

impl UserError for FileError {
    fn hint(&self) -> Option<String> {
        match self {
            FileError::Shape { .. } | FileError::Notation { .. } => {
                Some("`muster help workflow` shows what is in one".to_owned())
            }
            _ => None,
        }
    }
}

/// Reads and checks a workflow's file.
///
/// # Errors
/// [`FileError`].
pub fn read(path: &Path) -> Result<WorkflowSpec, FileError> {
    let wrong = |source| FileError::Io { path: path.to_owned(), source };
    let mut text = Vec::new();
    let file = fs::File::open(path).map_err(wrong)?;
    file.take(MAX_FILE as u64 + 1).read_to_end(&mut text).map_err(wrong)?;
    if text.len() > MAX_FILE {
        return Err(FileError::TooLarge(path.to_owned()));
    }
    parse(&path.display().to_string(), &text)
}

/// Reads and checks a workflow's text.
///
/// # Errors
/// [`FileError`].
pub fn parse(file: &str, text: &[u8]) -> Result<WorkflowSpec, FileError> {
    let value = value(file, text)?;
    let shape = |source| FileError::Shape { file: file.to_owned(), source };
    let spec: WorkflowSpec = serde_json::from_value(value).map_err(shape)?;
    spec.check().map_err(|source| FileError::Workflow { file: file.to_owned(), source })?;
    Ok(spec)
}

fn value(file: &str, text: &[u8]) -> Result<Value, FileError> {
    let notation = |line: Option<u32>, problem: String| FileError::Notation {
        file: file.to_owned(),
        line: line.filter(|line| *line > 0),
        problem,
    };
    if text.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{') {
        let line = |error: &serde_json::Error| u32::try_from(error.line()).ok();
        return serde_json::from_slice(text).map_err(|error| notation(line(&error), error.to_string()));
    }
    let padded = [HEAD.as_bytes(), &without_mark(text)].concat();
    let told = |error: ReadManifestError| {
        notation(error.line.map(|line| line.saturating_sub(HEAD_LINES)), error.problem.to_string())
    };
    let mut documents = manifest::read(&padded, Format::Yaml).map_err(told)?;
    let (Some(only), true) = (documents.pop(), documents.is_empty()) else {
        return Err(notation(None, "a file holds one workflow".to_owned()));
    };
    // It is canonical JSON.
    let mut value: Value =
        serde_json::from_slice(&only.spec).map_err(|error| notation(None, error.to_string()))?;
    if let Some(map) = value.as_object_mut() {
        map.remove("kind");
        map.remove("metadata");
    }
    Ok(value)
}

/// The text with the mark at its begin (`---`) blanked, which would end the document before it.
fn without_mark(text: &[u8]) -> Vec<u8> {
    let mut out = text.to_vec();
    let mut at = 0;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let said = line.trim_ascii();
        if said == b"---" {
            out[at..at + 3].fill(b' ');
            break;
        }
        if !said.is_empty() && !said.starts_with(b"#") {
            break;
        }
        at += line.len();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{FileError, parse};

    const GOOD: &str = "name: renew\nsteps:\n  - name: one\n    on: \"@edge\"\n    command: [/bin/true]\n    gate: {soak: 30m}\n";

    #[test]
    fn yaml_and_json_say_the_same() {
        let yaml = parse("w.yaml", GOOD.as_bytes()).unwrap();
        assert_eq!((yaml.name.as_str(), yaml.steps.len(), yaml.steps[0].gate.soak), ("renew", 1, 1800));
        let json = serde_json::to_vec(&yaml).unwrap();
        assert_eq!(parse("w.json", &json).unwrap(), yaml);
        let marked = format!("# renews\n---\n{GOOD}");
        assert_eq!(parse("w.yaml", marked.as_bytes()).unwrap(), yaml);
    }

    #[test]
    fn mistakes_name_the_line_of_the_file() {
        let twice = parse("w.yaml", format!("{GOOD}name: again\n").as_bytes()).unwrap_err();
        assert!(matches!(&twice, FileError::Notation { line: Some(7), .. }), "{twice}");
        assert!(matches!(parse("w.yaml", b"name: x\nsteps: []\n"), Err(FileError::Workflow { .. })));
        assert!(matches!(parse("w.yaml", b"name: x\nsteps: []\nwhat: 1\n"), Err(FileError::Shape { .. })));
        let two = format!("{GOOD}---\n{GOOD}");
        assert!(parse("w.yaml", two.as_bytes()).is_err());
    }
}
