//! A template body: does it parse, and which names does it use?

use lang::Template;
use lang::template::TemplateName;

use crate::shape::Reading;
use crate::yaml::At;

/// A template of a module.
#[derive(Clone, Debug)]
pub(crate) struct Body {
    pub(crate) text: String,
    pub(crate) names: Vec<TemplateName>,
}

/// Reads a template; `None` when it does not parse.
pub(crate) fn read(reading: &mut Reading<'_>, path: &str) -> Option<Body> {
    match Template::parse(path, reading.source) {
        Ok(template) => Some(Body { text: reading.source.to_owned(), names: template.uses() }),
        Err(error) => {
            let at = At { line: error.line, column: error.column, len: error.len };
            reading.error("E091", at, error.message).maybe_help(error.help);
            None
        }
    }
}
