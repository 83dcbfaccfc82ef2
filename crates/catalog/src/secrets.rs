//! Which values hold a secret, found in their expressions without evaluating them (SEC-3).
//!
//! An expression holds a secret when it calls `secret(...)` or reads a name that holds one: a part of it, or a map
//! around it. So no filter, comparison or template takes the secrecy away, and what is not touched by one stays plain.

use std::collections::BTreeSet;

use lang::{Expr, InterpolatedText, Value};
use model::collect::CollectInserting;

/// Dotted paths of values that hold a secret: `params.tls_key`, `params.users.0.password`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SecretPaths(BTreeSet<String>);

impl SecretPaths {
    /// Nothing holds a secret.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a path.
    pub fn insert(&mut self, path: String) {
        self.0.insert(path);
    }

    /// Every path.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// The same paths with another beginning; the empty one is the beginning itself.
    #[must_use]
    pub fn below(&self, root: &str) -> SecretPaths {
        let longer = |path: &String| if path.is_empty() { root.to_owned() } else { format!("{root}.{path}") };
        SecretPaths(self.0.iter().map(longer).collect_inserting())
    }

    /// The paths below one, as they are from there; the path itself is the empty one.
    #[must_use]
    pub fn from(&self, path: &str) -> SecretPaths {
        let below = |known: &String| match known.strip_prefix(path)? {
            "" => Some(String::new()),
            rest => rest.strip_prefix('.').map(str::to_owned),
        };
        SecretPaths(self.0.iter().filter_map(below).collect_inserting())
    }

    /// Whether a name reads something that holds a secret: it, a part of it, or a map around it.
    pub fn touches(&self, name: &[String]) -> bool {
        let name = name.join(".");
        let covers = |short: &str, long: &str| {
            short.is_empty()
                || long.strip_prefix(short).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        self.0.iter().any(|path| covers(path, &name) || covers(&name, path))
    }
}

impl Extend<String> for SecretPaths {
    fn extend<T: IntoIterator<Item = String>>(&mut self, paths: T) {
        self.0.extend(paths);
    }
}

/// Whether an expression holds a secret, given what tells that of names.
pub fn expr_holds(expr: &Expr, touches: &dyn Fn(&[String]) -> bool) -> bool {
    !expr.secrets().is_empty() || expr.names().iter().any(|name| touches(&name.path))
}

/// Whether a text holds a secret. One that does not parse holds none: it is refused for that.
pub fn text_holds(text: &str, touches: &dyn Fn(&[String]) -> bool) -> bool {
    !InterpolatedText::is_literal(text)
        && InterpolatedText::parse(text)
            .is_ok_and(|text| text.exprs().any(|(expr, _)| expr_holds(expr, touches)))
}

/// The paths below `at` of the texts in a value that hold a secret; `at` itself where the value is such a text.
pub fn paths_in(value: &Value, at: &str, touches: &dyn Fn(&[String]) -> bool) -> SecretPaths {
    let mut found = SecretPaths::default();
    collect(value, at, touches, &mut found);
    found
}

fn collect(value: &Value, at: &str, touches: &dyn Fn(&[String]) -> bool, found: &mut SecretPaths) {
    match value {
        Value::Str(text) => {
            if text_holds(text, touches) {
                found.insert(at.to_owned());
            }
        }
        Value::List(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(i, item)| collect(item, &format!("{at}.{i}"), touches, found));
        }
        Value::Map(map) => {
            map.iter().for_each(|(key, item)| collect(item, &format!("{at}.{key}"), touches, found));
        }
        Value::Bool(_) | Value::Int(_) => {}
    }
}

/// The one secret that a value is, where it is `${{ secret("NAME") }}` and nothing else.
pub fn lone_secret(value: &Value) -> Option<String> {
    let text =
        InterpolatedText::parse(value.as_str().filter(|text| !InterpolatedText::is_literal(text))?).ok()?;
    text.lone()?.lone_secret().map(str::to_owned)
}

/// The name of a param that a value is, where it is `${{ params.NAME }}` and nothing else.
pub fn lone_param(value: &Value) -> Option<String> {
    let text =
        InterpolatedText::parse(value.as_str().filter(|text| !InterpolatedText::is_literal(text))?).ok()?;
    match text.lone()?.lone_path()?.as_slice() {
        [root, name] if root == "params" => Some(name.clone()),
        _ => None,
    }
}

/// A reference as a value that expressions evaluate: what `secret:NAME` in a fleet repo stands for.
pub fn reference(name: &str) -> Value {
    Value::Str(format!("${{{{ {} }}}}", lang::secret::secret_reference(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str) -> Vec<String> {
        name.split('.').map(str::to_owned).collect()
    }

    #[test]
    fn a_name_touches_what_it_is_in_and_what_is_in_it() {
        let mut secret = SecretPaths::default();
        secret.extend(["params.key".to_owned(), "params.users.0.password".to_owned()]);
        for name in ["params", "params.key", "params.key.part", "params.users", "params.users.0.password"] {
            assert!(secret.touches(&path(name)), "{name}");
        }
        for name in ["params.keys", "params.port", "vars", "params.users.0.name", "params.users.1"] {
            assert!(!secret.touches(&path(name)), "{name}");
        }
        let items = secret.from("params.users.0");
        assert!(items.below("item").touches(&path("item.password")));
        assert!(!items.below("item").touches(&path("item.name")));
    }

    #[test]
    fn no_expression_takes_the_secrecy_away() {
        let touches = |name: &[String]| name == ["params".to_owned(), "key".to_owned()];
        for text in [
            "${{ secret(\"a\") }}",
            "x${{ params.key|upper }}y",
            "${{ params.key|length > 3 }}",
            "${{ [params.key]|join(\",\") }}",
            "${{ \"a\" if params.key == \"b\" else \"c\" }}",
        ] {
            assert!(text_holds(text, &touches), "{text}");
        }
        for text in ["secret", "${{ params.port }}", "$${{ secret(\"a\") }}"] {
            assert!(!text_holds(text, &touches), "{text}");
        }
        assert_eq!(lone_secret(&reference("a/b")), Some("a/b".to_owned()));
        assert_eq!(lone_secret(&Value::from("x ${{ secret(\"a\") }}")), None);
        assert_eq!(lone_param(&Value::from("${{ params.key }}")), Some("key".to_owned()));
    }
}
