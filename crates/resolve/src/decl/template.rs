//! A template body: does it parse, and which names does it use?

use lang::Template;
use lang::secret::is_secret_name;
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
        Ok(template) => {
            if template
                .secrets()
                .iter()
                .any(|used| used.name.as_deref().is_none_or(|name| !is_secret_name(name)))
            {
                let at = At { line: 1, column: 1, len: 1 };
                reading
                    .error("E050", at, "`secret` takes the name of a secret itself")
                    .help("write it in quotes, as in secret(\"team/name\")");
            }
            Some(Body { text: reading.source.to_owned(), names: template.uses() })
        }
        Err(error) => {
            let at = At { line: error.line, column: error.column, len: error.len };
            reading.error("E091", at, error.message).maybe_help(error.help);
            None
        }
    }
}
