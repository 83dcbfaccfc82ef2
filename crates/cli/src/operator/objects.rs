//! Synchronized objects on the operator port.

use http::Method;
use server::api::MAX_PAGE;
use server::api::objects::{
    Apply, Delete, NO_NAMESPACE, ObjectName, ObjectView, ObjectsView, Results, Resync, Resynced, SyncView,
    SyncsView,
};

use super::{Bytes, CALL, Called, Operator, UPLOAD, escape};

/// Which objects are wanted; what is `None` does not matter.
#[derive(Clone, Copy, Debug, Default)]
pub struct ObjectFilter<'a> {
    /// Of the nodes that this selector means.
    pub selector: Option<&'a str>,
    /// Of this kind.
    pub kind: Option<&'a str>,
    /// In this namespace.
    pub namespace: Option<&'a str>,
}

impl Operator {
    /// All objects that are wanted, page by page.
    ///
    /// # Errors
    /// [`super::CallError`].
    pub async fn objects(&self, filter: ObjectFilter<'_>) -> Called<Vec<ObjectView>> {
        let asked = [("match", filter.selector), ("kind", filter.kind), ("namespace", filter.namespace)];
        let mut all = Vec::new();
        let mut from: Option<String> = None;
        loop {
            let page: ObjectsView =
                self.get(&paged("/v1/objects", &asked, from.as_deref(), MAX_PAGE)).await?;
            all.extend(page.objects);
            match page.next {
                Some(next) => from = Some(next),
                None => return Ok(all),
            }
        }
    }

    /// One object with its manifest and status.
    ///
    /// # Errors
    /// [`super::CallError`]; `not_found` when there is none.
    pub async fn object(&self, name: &ObjectName) -> Called<ObjectView> {
        let ObjectName { node, kind, namespace, name } = name;
        let namespace = if namespace.is_empty() { NO_NAMESPACE } else { namespace };
        let parts = [node, kind, namespace, name].map(escape);
        self.get(&format!("/v1/objects/{}", parts.join("/"))).await
    }

    /// Makes objects so, or says what would become of them.
    ///
    /// # Errors
    /// [`super::CallError`]; what is refused one by one is in the answer.
    pub async fn apply(&self, apply: &Apply) -> Called<Results> {
        self.post("objects", apply, UPLOAD).await
    }

    /// Takes objects away, or says what would become of them.
    ///
    /// # Errors
    /// [`super::CallError`]; what is refused one by one is in the answer.
    pub async fn delete_objects(&self, delete: &Delete) -> Called<Results> {
        self.post("objects-delete", delete, UPLOAD).await
    }

    /// Compares everything with nodes anew.
    ///
    /// # Errors
    /// [`super::CallError`].
    pub async fn resync(&self, resync: &Resync) -> Called<Resynced> {
        self.post("resyncs", resync, UPLOAD).await
    }

    /// One page of how synchronization fares, from a hostname on; with the counts of all.
    ///
    /// # Errors
    /// [`super::CallError`].
    pub async fn sync(&self, selector: Option<&str>, from: Option<&str>, limit: usize) -> Called<SyncsView> {
        self.json(Method::GET, &paged("/v1/sync", &[("match", selector)], from, limit), Bytes::new(), CALL)
            .await
    }

    /// How synchronization fares with all nodes that a selector means, page by page.
    ///
    /// # Errors
    /// [`super::CallError`].
    pub async fn all_sync(&self, selector: Option<&str>) -> Called<Vec<SyncView>> {
        let mut page = self.sync(selector, None, MAX_PAGE).await?;
        let mut all = page.nodes;
        while let Some(next) = page.next {
            page = self.sync(selector, Some(next.as_str()), MAX_PAGE).await?;
            all.append(&mut page.nodes);
        }
        Ok(all)
    }
}

/// A path with what is asked in its query.
fn paged(path: &str, asked: &[(&str, Option<&str>)], from: Option<&str>, limit: usize) -> String {
    let mut query = vec![format!("limit={limit}")];
    let given = asked.iter().copied().chain([("from", from)]);
    query.extend(given.filter_map(|(name, value)| Some(format!("{name}={}", escape(value?)))));
    format!("{path}?{}", query.join("&"))
}
