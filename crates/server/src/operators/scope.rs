//! [`OperatorScope`]: the nodes that an operator may see and change.
//!
//! A scope goes by hostnames and by what a release declares, never by what nodes say of themselves: a node could else
//! talk itself into another operator's hands.

use lang::selector::{Selector, SelectorMatch, Subject};
use wire::{Code, Problem};

use crate::index::NodeSlot;
use crate::state::ControlPlane;

/// Which nodes.
pub(crate) enum OperatorScope {
    /// All of them, and what belongs to no node.
    Fleet,
    /// Those that a selector means.
    Nodes(Box<Selector>),
    /// None: the selector that is stored cannot be read by this version.
    Nothing(String),
}

impl OperatorScope {
    /// Reads the selector of a new scope.
    ///
    /// # Errors
    /// [`Code::BadSelector`].
    pub(crate) fn read(nodes: Option<&str>) -> Result<OperatorScope, Problem> {
        let Some(text) = nodes else { return Ok(OperatorScope::Fleet) };
        let selector = crate::work::select::read(text)?;
        if selector.uses_traits() {
            let detail =
                "a scope has no `where:`: it goes by hostnames, groups and labels, which nodes cannot change";
            return Err(Problem::new(Code::BadSelector, detail));
        }
        Ok(OperatorScope::Nodes(Box::new(selector)))
    }

    /// The scope that is stored.
    pub(super) fn stored(nodes: Option<&str>) -> OperatorScope {
        OperatorScope::read(nodes).unwrap_or_else(|_| OperatorScope::Nothing(nodes.unwrap_or("").to_owned()))
    }

    /// It is the whole fleet.
    pub(crate) fn is_fleet(&self) -> bool {
        matches!(self, OperatorScope::Fleet)
    }

    /// Its selector, as written; `*` for the whole fleet.
    pub(crate) fn as_str(&self) -> &str {
        match self {
            OperatorScope::Fleet => "*",
            OperatorScope::Nodes(selector) => selector.as_str(),
            OperatorScope::Nothing(text) => text,
        }
    }

    /// Whether a node is in it, by what the index has of the node: [`crate::refresh::refresh`] comes before.
    pub(crate) fn covers(&self, plane: &ControlPlane, slot: &NodeSlot) -> bool {
        let selector = match self {
            OperatorScope::Fleet => return true,
            OperatorScope::Nothing(_) => return false,
            OperatorScope::Nodes(selector) => selector,
        };
        let (id, hostname) = slot.names();
        let known = slot.is_declared() && selector.uses_declared();
        let declared = known.then(|| plane.index.declared().declared(&hostname, &selector.declared_terms()));
        let subject = Subject {
            hostname: hostname.as_str(),
            id: id.as_str(),
            traits: None,
            declared: declared.as_ref(),
        };
        // What is not known of a node does not let anybody in.
        selector.judge(&subject) == SelectorMatch::Yes
    }

    /// Why something is refused that is outside of it.
    pub(crate) fn refuses(&self, by: &str, what: &str) -> Problem {
        let detail = format!("{what}; the scope of {by} is {:?}", self.as_str());
        Problem::new(Code::OutsideScope, detail)
    }
}
