//! [`When`]: whether a module or resource is wanted, decided now or asked on the way.

use std::sync::Arc;

use lang::scope::Names;
use lang::{EvalError, Expr, Probe, Unobserved, Value};

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

impl ModuleScope {
    /// The same names with those of a loop's item.
    pub(crate) fn with_item(&self, item: LoopItem) -> ModuleScope {
        ModuleScope {
            params: Arc::clone(&self.params),
            unobserved: Arc::clone(&self.unobserved),
            shared: Arc::clone(&self.shared),
            item: Some(item),
        }
    }

    /// The names as expressions and templates see them, without answers of the host.
    pub(crate) fn names(&self) -> Names<'_> {
        let names = self.shared.names().with_ref("params", &self.params).with_unobserved(&self.unobserved);
        match &self.item {
            Some(LoopItem { key, item }) => names.with_ref("item", item).with_ref("key", key),
            None => names,
        }
    }
}

impl SharedScope {
    /// As [`ModuleScope::names`].
    pub(crate) fn names(&self) -> Names<'_> {
        let names = Names::new().with_ref("vars", &self.vars).with_ref("node", &self.node);
        let names = names.with_unobserved(&self.unobserved);
        match &self.traits {
            Some(traits) => names.with_ref("traits", traits),
            None => names,
        }
    }
}
