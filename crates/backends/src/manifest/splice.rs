//! Changing one document of a text that holds several, and nothing else of it.

use super::error::{ManifestProblem, ReadManifestError};
use super::{Format, Manifest, read, yaml};

/// The text with its document `position` replaced, or removed when there is no new one; the rest
/// stays as it is, comments included.
///
/// # Errors
/// When the text cannot be read, has no such document, or would not say the same of the
/// others afterwards.
pub fn splice(text: &str, position: usize, new: Option<&str>) -> Result<String, ReadManifestError> {
    let (_, begins) = yaml::read(text)?;
    let cannot =
        || ManifestProblem::NotPlain("this document cannot be changed on its own; change it by hand".into());
    let Some(&from) = begins.get(position) else { return Err(cannot().anywhere()) };
    let until = begins.get(position + 1).copied().unwrap_or(usize::MAX);
    let mut out = String::new();
    for (at, line) in text.split_inclusive('\n').enumerate() {
        let number = at + 1;
        if number == from
            && let Some(new) = new
        {
            out.push_str("---\n");
            out.push_str(new);
        }
        if number < from || number >= until {
            out.push_str(line);
        }
        if number < from && !line.ends_with('\n') {
            out.push('\n');
        }
    }
    let others = |text: &str, without: Option<usize>| -> Result<Vec<Manifest>, ReadManifestError> {
        let mut all = read(text.as_bytes(), Format::Yaml)?;
        all.retain(|manifest| Some(manifest.position) != without);
        Ok(all)
    };
    let before = others(text, Some(position))?;
    let after = others(&out, new.map(|_| position))?;
    let same = before.len() == after.len()
        && before.iter().zip(&after).all(|(a, b)| a.key == b.key && a.spec == b.spec && a.uid == b.uid);
    if same { Ok(out) } else { Err(cannot().anywhere()) }
}
