//! Diagnostics as people read them: position, code, message, the line, a caret, what is right.

use std::fmt::Write as _;

use lang::{Diagnostic, Diagnostics, SourceSpan};

use crate::tree::Tree;

/// The longest part of a line that is shown, in characters.
const MAX_WIDTH: usize = 110;

/// Writes every diagnostic with the line that it means.
///
/// ```text
/// modules/nginx/module.yaml:14:11  E012  {{ in YAML is read as a map
///    14 |     port: {{ port }}
///       |           ^^^^^^^^^^ write  ${{ params.port }}
/// ```
pub fn render(diagnostics: &Diagnostics, tree: &Tree) -> String {
    let mut out = String::new();
    for diagnostic in diagnostics {
        // Writing to a String cannot fail.
        let _ = one(&mut out, diagnostic, tree);
    }
    out
}

fn one(out: &mut String, diagnostic: &Diagnostic, tree: &Tree) -> std::fmt::Result {
    let Diagnostic { code, message, span, help, labels } = diagnostic;
    match span {
        Some(span) => {
            writeln!(out, "{}:{}:{}  {code}  {message}", span.file, span.line, span.column)?;
            snippet(out, span, help.as_deref(), tree)?;
        }
        None => {
            writeln!(out, "{code}  {message}")?;
            if let Some(help) = help {
                writeln!(out, "      = {help}")?;
            }
        }
    }
    for label in labels {
        writeln!(out, "   {}:{}:{}  {}", label.span.file, label.span.line, label.span.column, label.text)?;
        snippet(out, &label.span, None, tree)?;
    }
    Ok(())
}

fn snippet(out: &mut String, span: &SourceSpan, help: Option<&str>, tree: &Tree) -> std::fmt::Result {
    let bytes = tree.files.get(&*span.file).map(|file| &**file).unwrap_or_default();
    let line = bytes.split(|byte| *byte == b'\n').nth(span.line as usize - 1).unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let line = line.trim_end_matches('\r').trim_start_matches('\u{feff}');
    let column = (span.column as usize).saturating_sub(1);
    let total = line.chars().count();
    if total == 0 {
        return match help {
            Some(help) => writeln!(out, "      = {help}"),
            None => Ok(()),
        };
    }
    // A very long line is shown around the position.
    let skipped = if total > MAX_WIDTH { column.saturating_sub(MAX_WIDTH / 2) } else { 0 };
    let shown: String =
        line.chars().skip(skipped).take(MAX_WIDTH).map(|c| if c.is_control() { ' ' } else { c }).collect();
    let width = shown.chars().count();
    let start = (column - skipped).min(width);
    let carets = (span.len as usize).min(width - start).max(1);
    writeln!(out, "{:>5} | {shown}", span.line)?;
    let help = help.map(|help| format!(" {help}")).unwrap_or_default();
    writeln!(out, "      | {}{}{help}", " ".repeat(start), "^".repeat(carets))
}
