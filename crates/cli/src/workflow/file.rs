//! A workflow's file, in YAML or JSON.

use std::path::Path;

use backends::manifest;
use plane::work::{WorkflowError, WorkflowSpec};
use serde_json::Value;

use crate::failure::UserError;
use crate::object::{self, ReadError, of_file};

/// Why a file holds no workflow.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
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
    let text = of_file(path)?;
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
    let notation = |line, problem| FileError::Notation { file: file.to_owned(), line, problem };
    let mut values = manifest::values(text, object::notation(text))
        .map_err(|error| notation(error.line, error.problem.to_string()))?;
    match (values.pop(), values.is_empty()) {
        (Some(only), true) => Ok(only),
        _ => Err(notation(None, "a file holds one workflow".to_owned())),
    }
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
