//! [`When`]: whether a module or resource is wanted, decided now or asked on the way.

use std::sync::Arc;

use lang::{EvalError, Expr, Probe, Scope, Value};

/// What a `when:` came to at bind time.
#[derive(Clone, Debug)]
pub enum When {
    /// There is none, or it is true.
    Always,
    /// It is false; the source, for the report.
    Never(String),
    /// Only a node-side predicate can say (`file_exists`, `changed`).
    Ask(Condition),
    /// It cannot be evaluated; the reason.
    Failed(String),
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
    pub(crate) params: Value,
    pub(crate) shared: Arc<SharedScope>,
}

/// The names that all modules of a node see.
#[derive(Debug)]
pub(crate) struct SharedScope {
    pub(crate) vars: Value,
    pub(crate) traits: Value,
    pub(crate) node: Value,
}

impl When {
    /// Decides `source` as far as it can be decided without a host.
    pub(crate) fn decide(source: Option<&str>, scope: &Arc<ModuleScope>) -> When {
        let Some(source) = source else {
            return When::Always;
        };
        let expr = match Expr::parse(source) {
            Ok(expr) => expr,
            Err(error) => return When::Failed(format!("when: {error}")),
        };
        match expr.eval_bool(&**scope) {
            Ok(true) => When::Always,
            Ok(false) => When::Never(source.to_owned()),
            Err(EvalError::Needs(_)) => When::Ask(Condition { expr, scope: Arc::clone(scope) }),
            Err(error) => When::Failed(format!("when: {error}")),
        }
    }
}

impl Condition {
    /// Evaluates with what is known of the host so far.
    ///
    /// # Errors
    /// [`EvalError::Needs`] names the next question; anything else is a failure.
    pub fn eval(&self, known: &dyn Fn(&Probe) -> Option<bool>) -> Result<bool, EvalError> {
        self.expr.eval_bool(&Answered { scope: &self.scope, known })
    }

    /// The expression as written.
    pub fn source(&self) -> &str {
        self.expr.source()
    }
}

impl ModuleScope {
    /// The names as a template sees them.
    pub(crate) fn roots(&self) -> [(&'static str, &Value); 4] {
        let shared = &*self.shared;
        [("params", &self.params), ("vars", &shared.vars), ("traits", &shared.traits), ("node", &shared.node)]
    }
}

impl Scope for ModuleScope {
    fn root(&self, name: &str) -> Option<&Value> {
        self.roots().into_iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    fn probe(&self, _: &Probe) -> Option<bool> {
        None
    }

    fn roots(&self) -> Vec<&str> {
        ModuleScope::roots(self).into_iter().map(|(name, _)| name).collect()
    }
}

impl Scope for SharedScope {
    fn root(&self, name: &str) -> Option<&Value> {
        match name {
            "vars" => Some(&self.vars),
            "traits" => Some(&self.traits),
            "node" => Some(&self.node),
            _ => None,
        }
    }

    fn probe(&self, _: &Probe) -> Option<bool> {
        None
    }

    fn roots(&self) -> Vec<&str> {
        vec!["vars", "traits", "node"]
    }
}

/// A scope with the host's answers.
struct Answered<'a> {
    scope: &'a ModuleScope,
    known: &'a dyn Fn(&Probe) -> Option<bool>,
}

impl Scope for Answered<'_> {
    fn root(&self, name: &str) -> Option<&Value> {
        self.scope.root(name)
    }

    fn probe(&self, probe: &Probe) -> Option<bool> {
        (self.known)(probe)
    }

    fn roots(&self) -> Vec<&str> {
        Scope::roots(self.scope)
    }
}
