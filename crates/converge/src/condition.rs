//! [`When`]: whether a module or resource is wanted, decided now or asked on the way.

use std::collections::BTreeMap;
use std::sync::Arc;

use catalog::secrets::{SecretPaths, expr_holds, paths_in, text_holds};
use lang::scope::Names;
use lang::{EvalError, Expr, OpenedSecrets, Probe, Unobserved, Value};

/// What a `when:` came to at bind time.
#[derive(Clone, Debug, Default)]
pub enum When {
    /// There is none, or it is true.
    #[default]
    Always,
    /// It is false; the source, for the report.
    Never(String),
    /// Only a node-side predicate can say (`file_exists`, `changed`).
    Ask(Condition),
    /// It cannot be evaluated; the reason.
    Failed(EvalError),
}

/// An expression with the names it sees, evaluated in the run. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Condition {
    expr: Expr,
    scope: Arc<ModuleScope>,
}

/// The names that expressions and templates of one module see.
#[derive(Debug)]
pub(crate) struct ModuleScope {
    pub(crate) params: Arc<Value>,
    /// Params that are not known yet.
    pub(crate) unobserved: Arc<Unobserved>,
    /// Paths below `params` that hold a secret.
    pub(crate) secret: Arc<SecretPaths>,
    /// Params that are one secret and nothing else, with its name.
    pub(crate) whole_secrets: Arc<BTreeMap<String, String>>,
    pub(crate) shared: Arc<SharedScope>,
    /// In a resource with `foreach`.
    pub(crate) item: Option<LoopItem>,
}

/// What a resource with `foreach` stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoopItem {
    /// The name in a map, the number from 0 in a list.
    pub(crate) key: Value,
    pub(crate) item: Value,
    /// Paths below `item` and `key` that hold a secret.
    pub(crate) secret: SecretPaths,
}

/// The names that all modules of a node see.
#[derive(Debug)]
pub(crate) struct SharedScope {
    pub(crate) vars: Value,
    /// `None` before anybody observed them.
    pub(crate) traits: Option<Value>,
    pub(crate) node: Value,
    /// Names among them that are not known yet.
    pub(crate) unobserved: Unobserved,
    /// Paths below `vars` that hold a secret.
    pub(crate) secret: SecretPaths,
    /// What was opened of the node's secrets.
    pub(crate) secrets: OpenedSecrets,
    /// Paths that no resource may write, beside those that are so everywhere.
    pub(crate) own_paths: Box<[String]>,
}

impl When {
    /// Decides `source` as far as it can be decided without a host.
    pub(crate) fn decide(source: Option<&str>, scope: &Arc<ModuleScope>) -> When {
        let Some(source) = source else {
            return When::Always;
        };
        let expr = match Expr::parse(source) {
            Ok(expr) => expr,
            Err(error) => return When::Failed(error.into()),
        };
        if scope.expr_holds_secret(&expr) {
            let message = format!("{NOT_HERE}: nobody must see from what is done what it is");
            return When::Failed(EvalError::Failed { message, offset: 0, len: source.len() });
        }
        match expr.eval_bool(&scope.names()) {
            Ok(true) => When::Always,
            Ok(false) => When::Never(source.to_owned()),
            Err(EvalError::Needs(_)) => When::Ask(Condition { expr, scope: Arc::clone(scope) }),
            Err(error) => When::Failed(error),
        }
    }
}

impl Condition {
    /// Evaluates with what is known of the host so far.
    ///
    /// # Errors
    /// [`EvalError::Needs`] names the next question; anything else is a failure.
    pub fn eval(&self, known: &dyn Fn(&Probe) -> Option<bool>) -> Result<bool, EvalError> {
        let mut names = self.scope.names();
        loop {
            match self.expr.eval_bool(&names) {
                Err(EvalError::Needs(probe)) => match known(&probe) {
                    Some(answer) => names = names.answer(probe, answer),
                    None => return Err(EvalError::Needs(probe)),
                },
                evaluated => return evaluated,
            }
        }
    }

    /// The expression as written.
    pub fn source(&self) -> &str {
        self.expr.source()
    }
}

/// How a secret is refused where it must not stand.
pub(crate) const NOT_HERE: &str = "a secret cannot stand here";

impl ModuleScope {
    /// No name holds a secret, so that only what calls `secret(...)` does.
    fn is_plain(&self) -> bool {
        let item = self.item.as_ref().is_none_or(|item| item.secret.is_empty());
        self.secret.is_empty() && self.shared.secret.is_empty() && item
    }

    /// Whether a name reads something that holds a secret.
    pub(crate) fn touches_secret(&self, name: &[String]) -> bool {
        match name.first().map(String::as_str) {
            Some("params") => self.secret.touches(name),
            Some("vars") => self.shared.secret.touches(name),
            Some("item" | "key") => self.item.as_ref().is_some_and(|item| item.secret.touches(name)),
            _ => false,
        }
    }

    pub(crate) fn expr_holds_secret(&self, expr: &Expr) -> bool {
        expr_holds(expr, &|name| self.touches_secret(name))
    }

    /// Whether a text is made of a secret. Where no name holds one, most texts are not looked at.
    pub(crate) fn text_holds_secret(&self, text: &str) -> bool {
        let may = !self.is_plain() || text.contains("secret");
        may && text_holds(text, &|name| self.touches_secret(name))
    }

    /// The parts of a value that are made of a secret, by their paths below `at`.
    pub(crate) fn secret_parts(&self, value: &Value, at: &str) -> SecretPaths {
        paths_in(value, at, &|name| self.touches_secret(name))
    }

    /// Whether a value or a part of it is made of a secret.
    pub(crate) fn value_holds_secret(&self, value: &Value) -> bool {
        match value {
            Value::Str(text) => self.text_holds_secret(text),
            Value::List(items) => items.iter().any(|item| self.value_holds_secret(item)),
            Value::Map(map) => map.values().any(|item| self.value_holds_secret(item)),
            Value::Bool(_) | Value::Int(_) => false,
        }
    }

    /// The same names with those of a loop's item.
    pub(crate) fn with_item(&self, item: LoopItem) -> ModuleScope {
        ModuleScope {
            params: Arc::clone(&self.params),
            unobserved: Arc::clone(&self.unobserved),
            secret: Arc::clone(&self.secret),
            whole_secrets: Arc::clone(&self.whole_secrets),
            shared: Arc::clone(&self.shared),
            item: Some(item),
        }
    }

    /// The names as expressions and templates see them, without answers of the host.
    pub(crate) fn names(&self) -> Names<'_> {
        let names = self.shared.names().with_ref("params", &self.params).with_unobserved(&self.unobserved);
        match &self.item {
            Some(LoopItem { key, item, .. }) => names.with_ref("item", item).with_ref("key", key),
            None => names,
        }
    }
}

impl SharedScope {
    /// As [`ModuleScope::names`].
    pub(crate) fn names(&self) -> Names<'_> {
        let names = Names::new().with_ref("vars", &self.vars).with_ref("node", &self.node);
        let names = names.with_unobserved(&self.unobserved).with_secrets(&self.secrets);
        match &self.traits {
            Some(traits) => names.with_ref("traits", traits),
            None => names,
        }
    }
}
