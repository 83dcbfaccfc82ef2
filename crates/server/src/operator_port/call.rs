//! [`OperatorCall`]: a request of an operator who was let in, and what he may see and change of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use lang::selector::Selector;
use model::NodeId;
use store::Store;
use store::audit::AuditSubject;
use wire::Problem;

use crate::index::{NodeSlot, clip};
use crate::operators::OperatorCaller;
use crate::operators::audit::RequestAudit;
use crate::operators::scope::OperatorScope;
use crate::refresh::refresh;
use crate::state::ControlPlane;
use crate::work::select::{self, MeantPage};

/// Who asks, and the control plane that is asked.
pub(crate) struct OperatorCall {
    pub(crate) plane: Arc<ControlPlane>,
    pub(crate) by: String,
    pub(crate) caller: OperatorCaller,
    pub(crate) audit: Arc<RequestAudit>,
}

impl OperatorCall {
    /// He may see and change some nodes alone.
    pub(crate) fn is_scoped(&self) -> bool {
        !self.caller.scope.is_fleet()
    }

    /// Whether he may see and change a node; [`refresh`] comes before.
    pub(crate) fn covers(&self, slot: &NodeSlot) -> bool {
        self.caller.scope.covers(&self.plane, slot)
    }

    /// The same of a node by its id; one that was removed is in the scope of the whole fleet alone.
    pub(crate) fn covers_id(&self, id: &NodeId) -> bool {
        !self.is_scoped() || self.plane.index.get(id).is_some_and(|slot| self.covers(&slot))
    }

    /// A node by hostname or id, as the operator names it.
    ///
    /// # Errors
    /// [`wire::Code::NotFound`]; with a scope [`wire::Code::OutsideScope`] for what is not in it, whether there is such
    /// a node or not.
    pub(crate) async fn node(&self, name: &str) -> Result<Arc<NodeSlot>, Problem> {
        if !self.is_scoped() {
            return self.plane.index.named(name);
        }
        refresh(&self.plane).await;
        let slot = self.plane.index.find(name).filter(|slot| self.covers(slot));
        slot.ok_or_else(|| self.outside(&format!("{:?} is not in it", clip(name))))
    }

    /// Nodes by hostname or id, in this order.
    ///
    /// # Errors
    /// As [`OperatorCall::node`], of the first that is refused.
    pub(crate) async fn nodes(&self, names: &[String]) -> Result<Vec<Arc<NodeSlot>>, Problem> {
        if !self.is_scoped() {
            return names.iter().map(|name| self.plane.index.named(name)).collect();
        }
        let mut slots = Vec::with_capacity(names.len());
        for name in names {
            slots.push(self.node(name).await?);
        }
        Ok(slots)
    }

    /// All of these are in the scope.
    ///
    /// # Errors
    /// [`wire::Code::OutsideScope`] says how many are not.
    pub(crate) async fn all_in_scope(&self, slots: &[Arc<NodeSlot>]) -> Result<(), Problem> {
        if !self.is_scoped() {
            return Ok(());
        }
        refresh(&self.plane).await;
        match slots.iter().filter(|slot| !self.covers(slot)).count() {
            0 => Ok(()),
            outside => Err(self.outside(&format!("the selector means {outside} nodes that are not in it"))),
        }
    }

    /// Whom a listing means: its selector, else the scope; `None` is every node.
    pub(crate) fn listed(&self, selector: Option<&str>) -> Result<Option<Selector>, Problem> {
        match (selector, &*self.caller.scope) {
            (Some(text), _) => Ok(Some(select::read(text)?)),
            (None, OperatorScope::Fleet) => Ok(None),
            (None, OperatorScope::Nodes(selector)) => Ok(Some((**selector).clone())),
            (None, OperatorScope::Nothing(_)) => Err(self.outside("this version cannot read it")),
        }
    }

    /// So many of the nodes that a selector means and that are in the scope, from a hostname on. A page may be short.
    pub(crate) async fn meant_from(
        &self,
        selector: &Selector,
        from: &str,
        limit: usize,
    ) -> Result<MeantPage, Problem> {
        let mut page = select::meant_from(&self.plane, selector, from, limit).await?;
        if self.is_scoped() {
            refresh(&self.plane).await;
            page.slots.retain(|slot| self.covers(slot));
        }
        Ok(page)
    }

    /// The store, whose first write appends this request's entry to the audit log in the same transaction.
    pub(crate) fn recording(&self, subject: AuditSubject) -> Arc<Store> {
        self.audit.store(subject)
    }

    /// The nodes that a request is about, as its entry names them.
    pub(crate) fn subject(slots: &[Arc<NodeSlot>]) -> AuditSubject {
        let names: BTreeSet<_> = slots.iter().map(|slot| slot.names().1).collect();
        AuditSubject::nodes(names)
    }

    /// Why something outside of the scope is refused.
    pub(crate) fn outside(&self, what: &str) -> Problem {
        self.caller.scope.refuses(&self.by, what)
    }
}
