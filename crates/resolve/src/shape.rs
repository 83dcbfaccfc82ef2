//! Walking a file's [`YamlNode`]s with the shapes that the format knows.

use lang::Value;

use crate::exprs::Uses;
use crate::sink::{Added, FileSink};
use crate::yaml::{self, At, Spanned, YamlKind, YamlNode};

/// A file being read: its text, the mistakes found so far, and what it refers to.
pub(crate) struct Reading<'a> {
    pub(crate) source: &'a str,
    pub(crate) sink: &'a mut FileSink,
    pub(crate) uses: Uses,
}

/// The longest name of a module, role, channel, environment, param or id, in bytes.
const MAX_NAME: usize = 64;

impl<'a> Reading<'a> {
    pub(crate) fn new(source: &'a str, sink: &'a mut FileSink) -> Reading<'a> {
        Reading { source, sink, uses: Uses::default() }
    }

    pub(crate) fn error(&mut self, code: &'static str, at: At, message: impl Into<String>) -> Added<'_> {
        self.sink.error(code, at, message)
    }

    /// The entries of a map; none, and a mistake, for anything else. Nothing at all is an
    /// empty map.
    pub(crate) fn map<'n>(&mut self, node: &'n YamlNode, what: &str) -> &'n [(Spanned<String>, YamlNode)] {
        match &node.kind {
            YamlKind::Map(entries) => entries,
            _ => {
                self.wrong_shape(node, what, "a map (`key: value` lines)");
                &[]
            }
        }
    }

    /// The keys of a map, to be taken one by one; none, and a mistake, for anything else. `name` is
    /// how messages call this map, `what` any such map.
    pub(crate) fn keys<'n>(&mut self, node: &'n YamlNode, name: &str, what: &'static str) -> Keys<'n> {
        let rest = self.map(node, name).iter().collect();
        Keys { what, rest, known: Vec::new(), is_map: matches!(node.kind, YamlKind::Map(_)) }
    }

    /// The items of a list; none, and a mistake, for anything else.
    pub(crate) fn list<'n>(&mut self, node: &'n YamlNode, what: &str) -> &'n [YamlNode] {
        match &node.kind {
            YamlKind::List(items) => items,
            _ => {
                self.wrong_shape(node, what, "a list (`- item` lines, or [item, item])");
                &[]
            }
        }
    }

    fn wrong_shape(&mut self, node: &YamlNode, what: &str, wanted: &str) {
        if !node.is_bad() {
            let message = format!("{what} is {wanted}, and this is {}", node.describe());
            self.error("E014", node.at, message);
        }
    }

    /// A text, where no expression may stand.
    pub(crate) fn text(&mut self, node: &YamlNode, what: &str) -> Option<Spanned<String>> {
        let text = self.any_text(node, what)?;
        if text.value.contains("${{") {
            self.error(
                "E063",
                node.at,
                format!("{what} is declared, not computed: no expression may stand here"),
            )
            .help("write the value itself; expressions stand in vars, params and a module's own text");
            return None;
        }
        Some(text)
    }

    /// A text, expressions and all.
    pub(crate) fn any_text(&mut self, node: &YamlNode, what: &str) -> Option<Spanned<String>> {
        match &node.kind {
            YamlKind::Text { text, .. } if !node.is_nothing() => {
                Some(Spanned { value: text.clone(), at: node.at })
            }
            YamlKind::Text { .. } => {
                self.error("E010", node.at, format!("{what} has no value"))
                    .help("give it one, or drop the line");
                None
            }
            _ => {
                self.wrong_shape(node, what, "a text");
                None
            }
        }
    }

    /// A list of texts.
    pub(crate) fn texts(&mut self, node: &YamlNode, what: &str) -> Vec<Spanned<String>> {
        let item = format!("an item of {what}");
        self.list(node, what).iter().filter_map(|node| self.text(node, &item)).collect()
    }

    /// One text or a list of them.
    pub(crate) fn one_or_more(&mut self, node: &YamlNode, what: &str) -> Vec<Spanned<String>> {
        match &node.kind {
            YamlKind::Text { .. } => self.text(node, what).into_iter().collect(),
            _ => self.texts(node, what),
        }
    }

    /// A bool, read from its raw text.
    pub(crate) fn bool(&mut self, node: &YamlNode, what: &str) -> Option<bool> {
        let text = self.text(node, what)?;
        catalog::params::bool(&Value::Str(text.value))
            .map_err(|why| {
                self.error("E017", node.at, format!("{what}: {why}"));
            })
            .ok()
    }

    /// A duration in seconds.
    pub(crate) fn duration(&mut self, node: &YamlNode, what: &str) -> Option<u32> {
        let text = self.text(node, what)?;
        catalog::duration::parse(&text.value)
            .map_err(|why| {
                self.error("E017", node.at, format!("{what}: {why}"));
            })
            .ok()
    }

    /// A whole number between two bounds.
    pub(crate) fn int(&mut self, node: &YamlNode, what: &str, min: i64, max: i64) -> Option<i64> {
        let text = self.text(node, what)?;
        match catalog::params::plain_int(&text.value) {
            Some(int) if (min..=max).contains(&int) => Some(int),
            _ => {
                let message =
                    format!("{what} is a whole number from {min} to {max}, and this is `{}`", text.value);
                self.error("E017", node.at, message);
                None
            }
        }
    }

    /// One of a few words.
    pub(crate) fn word<T: Copy>(&mut self, node: &YamlNode, what: &str, words: &[(&str, T)]) -> Option<T> {
        let text = self.text(node, what)?;
        let found = words.iter().find(|(word, _)| *word == text.value);
        if found.is_none() {
            let help = near_or_all(&text.value, words.iter().map(|(word, _)| *word));
            self.error("E017", text.at, format!("there is no {what} `{}`", text.value)).help(help);
        }
        found.map(|(_, value)| *value)
    }

    /// A value of any shape.
    pub(crate) fn value(&mut self, node: &YamlNode) -> Option<Value> {
        yaml::value_of(node, self.sink)
    }

    /// A name as modules, roles, channels and environments have them.
    pub(crate) fn name(&mut self, name: &str, at: At, what: &str) -> bool {
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
        let starts = name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
        let good = starts && name.len() <= MAX_NAME && name.chars().all(fits);
        if !good {
            self.error("E023", at, format!("`{name}` cannot name {what}"))
                .help("lower-case letters, digits, - and _, at most 64, beginning with a letter or digit");
        }
        good
    }

    /// A name that expressions can use without quotes.
    pub(crate) fn identifier(&mut self, name: &str, at: At, what: &str) -> bool {
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let starts = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
        let good = starts && name.len() <= MAX_NAME && name.chars().all(fits);
        if !good {
            self.error("E023", at, format!("`{name}` cannot name {what}"))
                .help("lower-case letters, digits and _, at most 64, beginning with a letter");
        }
        good
    }

    /// A key that this map does not know.
    pub(crate) fn unknown_key(&mut self, key: &Spanned<String>, known: &[&str], what: &str) {
        let help = match lang::nearest(&key.value, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("{what} has {}", known.join(", ")),
        };
        self.error("E015", key.at, format!("{what} has no `{}`", key.value)).help(help);
    }

    /// A key that must be there.
    pub(crate) fn missing_key(&mut self, at: At, what: &str, key: &str, help: &str) {
        self.error("E016", at, format!("{what} needs `{key}`")).help(help);
    }
}

/// The keys of a map that were not taken yet. What nobody takes is unknown.
pub(crate) struct Keys<'n> {
    what: &'static str,
    rest: Vec<&'n (Spanned<String>, YamlNode)>,
    known: Vec<&'static str>,
    is_map: bool,
}

impl<'n> Keys<'n> {
    /// What stands under a key.
    pub(crate) fn get(&mut self, key: &'static str) -> Option<&'n YamlNode> {
        self.known.push(key);
        self.refused(key).map(|(_, node)| node)
    }

    /// What stands under a key, read; nothing where the key is not there.
    pub(crate) fn read<T: Default>(&mut self, key: &'static str, read: impl FnOnce(&'n YamlNode) -> T) -> T {
        self.get(key).map(read).unwrap_or_default()
    }

    /// Sets what a key says, where it is there and can be read.
    pub(crate) fn set<T>(
        &mut self,
        key: &'static str,
        target: &mut T,
        read: impl FnOnce(&'n YamlNode) -> Option<T>,
    ) {
        if let Some(value) = self.get(key).and_then(read) {
            *target = value;
        }
    }

    /// What stands under a key that must be there in the map of this name.
    pub(crate) fn needed(
        &mut self,
        reading: &mut Reading<'_>,
        key: &'static str,
        (at, name): (At, &str),
        help: &str,
    ) -> Option<&'n YamlNode> {
        let found = self.get(key);
        if found.is_none() && self.is_map {
            reading.missing_key(at, name, key, help);
        }
        found
    }

    /// The entry of a key that is refused in words of its own.
    pub(crate) fn refused(&mut self, key: &str) -> Option<&'n (Spanned<String>, YamlNode)> {
        let found = self.rest.iter().position(|(name, _)| name.value == key)?;
        Some(self.rest.remove(found))
    }

    /// Reports the keys that nobody took.
    pub(crate) fn end(self, reading: &mut Reading<'_>) {
        for (key, _) in self.rest {
            reading.unknown_key(key, &self.known, self.what);
        }
    }
}

/// `did you mean ...?`, if a name is near.
pub(crate) fn did_you_mean<'n>(name: &str, names: impl IntoIterator<Item = &'n str>) -> Option<String> {
    // Any two names of one letter are near.
    if name.chars().count() < 2 {
        return None;
    }
    lang::nearest(name, names).map(|near| format!("did you mean `{near}`?"))
}

/// The nearest name, or all there are.
pub(crate) fn near_or_all<'n>(name: &str, names: impl Iterator<Item = &'n str> + Clone) -> String {
    /// More names than this are no help.
    const SHOWN: usize = 12;
    did_you_mean(name, names.clone()).unwrap_or_else(|| {
        let mut all: Vec<&str> = names.take(SHOWN + 1).collect();
        if all.is_empty() {
            return "there are none".into();
        }
        if all.len() > SHOWN {
            all.truncate(SHOWN);
            all.push("...");
        }
        format!("there are {}", all.join(", "))
    })
}
