//! `repository`: a source of packages as apt reads it (deb822), and the priority of its packages.

use model::Fields;

/// The first line of every file.
const HEADER: &str = "# Kept by Muster.\n";

/// Whether a key is armored text.
pub fn is_armored(bytes: &[u8]) -> bool {
    bytes.trim_ascii_start().starts_with(b"-----BEGIN PGP")
}

/// What the files say: `sources`, `preferences`, and the key of the repository by path and as a state
/// names it.
pub fn observe(
    sources: Option<&str>,
    preferences: Option<&str>,
    key: Option<(&str, &str)>,
) -> Option<Fields> {
    let stanza = SourceStanza::read(sources?);
    let list = |name: &str| stanza.words(name);
    let flag = |name: &str, default: bool| match stanza.words(name).to_ascii_lowercase().as_str() {
        "yes" | "true" | "on" | "1" => true,
        "no" | "false" | "off" | "0" => false,
        _ => default,
    };
    let pinned =
        |name: &str| preferences.map(|text| SourceStanza::read(text).words(name)).unwrap_or_default();
    let signed_by = list("Signed-By");
    // The key beside it counts where the source names it.
    let own = key.filter(|(path, _)| signed_by == **path).map(|(_, key)| key.to_owned());
    Some(Fields::from([
        ("types".to_owned(), list("Types")),
        ("uris".to_owned(), list("URIs")),
        ("suites".to_owned(), list("Suites")),
        ("components".to_owned(), list("Components")),
        ("architectures".to_owned(), list("Architectures")),
        ("enabled".to_owned(), flag("Enabled", true).to_string()),
        ("trusted".to_owned(), flag("Trusted", false).to_string()),
        ("signed_by".to_owned(), if own.is_some() { String::new() } else { signed_by }),
        ("key".to_owned(), own.unwrap_or_default()),
        ("priority".to_owned(), pinned("Pin-Priority")),
        ("pin".to_owned(), pinned("Pin")),
    ]))
}

/// Why a file of sources that Muster did not write cannot be taken over, if it cannot: what it says
/// more than a state holds would be lost.
pub fn foreign(sources: &str) -> Option<String> {
    if sources.starts_with(HEADER) {
        return None;
    }
    let stanza = SourceStanza::read(sources);
    let known = |name: &str| FIELDS.iter().any(|field| field.eq_ignore_ascii_case(name));
    let lines = sources.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()).count();
    let of_first: usize = stanza.fields.iter().map(|(_, values)| values.len()).sum();
    let what = if lines > of_first {
        "has more than one stanza".to_owned()
    } else if let Some((name, _)) = stanza.fields.iter().find(|(name, _)| !known(name)) {
        format!("has the field {name}")
    } else if stanza
        .fields
        .iter()
        .any(|(name, values)| name.eq_ignore_ascii_case("Signed-By") && values.len() > 1)
    {
        "has a key in the file itself".to_owned()
    } else {
        return None;
    };
    Some(format!(
        "it is there already, not made by Muster, and {what}, which would be lost; move it away first"
    ))
}

/// The fields of a stanza that a state holds.
const FIELDS: &[&str] =
    &["Types", "URIs", "Suites", "Components", "Architectures", "Enabled", "Trusted", "Signed-By"];

/// The file of a source in the state `to`; `key` is the path of its own key, if it has one.
pub fn sources(to: &Fields, key: Option<&str>) -> String {
    let of = |name: &str| to.get(name).map_or("", String::as_str);
    let signed_by = key.unwrap_or(of("signed_by"));
    let mut file = HEADER.to_owned();
    let mut line = |name: &str, value: &str| {
        if !value.is_empty() {
            file.push_str(&format!("{name}: {value}\n"));
        }
    };
    line("Enabled", if of("enabled") == "false" { "no" } else { "" });
    line("Types", of("types"));
    line("URIs", of("uris"));
    line("Suites", of("suites"));
    line("Components", of("components"));
    line("Architectures", of("architectures"));
    line("Trusted", if of("trusted") == "true" { "yes" } else { "" });
    line("Signed-By", signed_by);
    file
}

/// The file with the priority of a repository's packages; `None` where it has none of its own.
pub fn preferences(to: &Fields) -> Option<String> {
    let priority = to.get("priority").filter(|priority| !priority.is_empty())?;
    let pin = to.get("pin").map_or("", String::as_str);
    Some(format!("{HEADER}Package: *\nPin: {pin}\nPin-Priority: {priority}\n"))
}

/// The first stanza of a file in deb822.
struct SourceStanza<'a> {
    fields: Vec<(&'a str, Vec<&'a str>)>,
}

impl<'a> SourceStanza<'a> {
    fn read(file: &'a str) -> SourceStanza<'a> {
        let mut fields: Vec<(&str, Vec<&str>)> = Vec::new();
        for line in file.lines().filter(|line| !line.starts_with('#')) {
            if line.trim().is_empty() {
                match fields.is_empty() {
                    true => continue,
                    false => break,
                }
            }
            match line.split_once(':') {
                Some((name, value)) if !line.starts_with([' ', '\t']) => fields.push((name, vec![value])),
                _ => fields.last_mut().into_iter().for_each(|(_, values)| values.push(line)),
            }
        }
        SourceStanza { fields }
    }

    /// The words of a field, with one blank between them; nothing where it is not there.
    fn words(&self, wanted: &str) -> String {
        let field = self.fields.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
        let words =
            field.into_iter().flat_map(|(_, values)| values.iter().flat_map(|line| line.split_whitespace()));
        words.collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use catalog::schema::{BindContext, bind};
    use catalog::types::Spec;
    use serde_json::json;

    use super::*;

    fn declared(attributes: serde_json::Value) -> Result<Fields, String> {
        let attributes = serde_json::from_value(attributes).unwrap();
        let context = BindContext { files: &BTreeMap::new(), rendered: None };
        let spec = bind("repository", "example", &attributes, &context)?;
        Ok(match &spec {
            Spec::Repository(_) => spec.state().unwrap().declared(),
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn a_file_that_says_more_than_a_state_is_not_taken_over() {
        let plain = "# mine\nTypes: deb\nURIs: https://deb.example.com\nSuites: stable\n";
        assert_eq!(foreign(plain), None);
        let more = |text: &str| foreign(&format!("{plain}{text}")).unwrap_or_default();
        assert!(more("\nTypes: deb\nURIs: https://security.example.com\n").contains("more than one stanza"));
        assert!(more("By-Hash: yes\n").contains("By-Hash"));
        assert!(more("Signed-By:\n -----BEGIN PGP\n .\n").contains("a key in the file itself"));
        assert_eq!(foreign(&format!("{HEADER}{plain}By-Hash: yes\n")), None);
    }

    #[test]
    fn what_is_written_reads_as_it_was_declared() {
        let key = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nabc\n-----END PGP PUBLIC KEY BLOCK-----";
        for attributes in [
            json!({"uris": "https://deb.example.com/debian", "suites": ["bookworm", "bookworm-updates"],
                "components": ["main", "extra"], "architectures": ["amd64"], "key": key, "priority": 900}),
            json!({"uris": ["file:/srv/a", "file:/srv/b"], "suites": "./", "trusted": true, "enabled": false}),
            json!({"uris": "http://x/", "suites": "s", "components": "c", "signed_by": "/usr/share/keyrings/x.gpg",
                "types": ["deb", "deb-src"], "priority": -1, "pin": "release n=s"}),
        ] {
            let to = declared(attributes).unwrap();
            let own = (!to["key"].is_empty()).then_some("/etc/apt/keyrings/example.asc");
            let file = sources(&to, own);
            let key = own.map(|path| (path, to["key"].as_str()));
            assert_eq!(observe(Some(&file), preferences(&to).as_deref(), key).as_ref(), Some(&to), "{file}");
        }
    }

    #[test]
    fn the_file_is_what_apt_reads() {
        let to = declared(json!({"uris": "https://deb.example.com:8443/debian", "suites": "bookworm",
            "components": "main", "trusted": true, "priority": 500}))
        .unwrap();
        assert_eq!(
            sources(&to, None),
            "# Kept by Muster.\nTypes: deb\nURIs: https://deb.example.com:8443/debian\nSuites: bookworm\n\
             Components: main\nTrusted: yes\n"
        );
        let pinned = "# Kept by Muster.\nPackage: *\nPin: origin \"deb.example.com\"\nPin-Priority: 500\n";
        assert_eq!(preferences(&to).as_deref(), Some(pinned));
    }

    #[test]
    fn a_file_that_somebody_wrote_is_understood() {
        let file = "\n# mine\nenabled: NO\nTypes: deb deb-src\nuris: http://a/\n http://b/\nSuites: s\nTrusted:yes\n\nTypes: deb\n";
        let now = observe(Some(file), None, None).unwrap();
        for (name, expected) in [
            ("enabled", "false"),
            ("types", "deb deb-src"),
            ("uris", "http://a/ http://b/"),
            ("trusted", "true"),
        ] {
            assert_eq!(now[name], expected, "{name}");
        }
        assert_eq!(observe(None, Some("Pin: x"), None), None);
    }

    #[test]
    fn what_apt_would_misread_is_refused() {
        for (attributes, said) in [
            (
                json!({"uris": "deb.example.com", "suites": "s", "components": "c", "trusted": true}),
                "is not an address",
            ),
            (
                json!({"uris": "http://a/ x", "suites": "s", "components": "c", "trusted": true}),
                "is not one word",
            ),
            (json!({"uris": "http://a/", "suites": "s", "trusted": true}), "a suite has some"),
            (json!({"uris": "http://a/", "suites": "s", "components": "c"}), "nothing says who signs"),
            (
                json!({"uris": "http://a/", "suites": "s", "components": "c", "trusted": true, "key": "x"}),
                "both say",
            ),
            (
                json!({"uris": "http://a/", "suites": "s", "components": "c",
                    "signed_by": "/etc/apt/keyrings/example.asc"}),
                "keeps a key that it declares itself",
            ),
            (
                json!({"uris": "http://a/", "suites": "s", "components": "c", "key": "x"}),
                "no armored public key",
            ),
            (
                json!({"uris": "http://a/", "suites": "s", "components": "c", "trusted": true, "types": "rpm"}),
                "neither deb",
            ),
        ] {
            let why = declared(attributes).unwrap_err();
            assert!(why.contains(said), "{why}");
        }
    }
}
