//! [`Operation`]: one thing that the operator port can be asked, described once for both ends.
//!
//! ```text
//!            method, path, request type -> answer type
//!                 /                            \
//!   client: uri(request), JSON          server: read(path, query, body) -> request
//!           answer  <------------------------  handler(request) -> answer
//! ```
//!
//! A request is one type. What the path names (`{node}`) is taken from its fields; the rest goes
//! into the query of a `GET` or `DELETE`, and into the JSON body of a `POST`.

use std::marker::PhantomData;
use std::time::Duration;

use http::Method;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use store::OperatorRole;
use wire::{Code, Problem, body, percent};

use super::MAX_PAGE;

/// How long a client waits for the answer to a small question.
const CALL: Duration = Duration::from_secs(30);
/// How long a client waits where much is sent, answered or made durable.
const TRANSFER: Duration = Duration::from_secs(180);

/// A question or an order with the types of its request and its answer; a refusal is a
/// [`Problem`].
#[derive(Debug)]
pub struct Operation<Q, A> {
    /// The HTTP method.
    pub method: Method,
    /// The path; `{name}` stands for one segment, a field of the request.
    pub path: &'static str,
    /// How long a client waits for the answer.
    pub within: Duration,
    /// The least role of an operator that may ask for it.
    pub role: OperatorRole,
    /// For whom it is, of those.
    pub reach: OperationReach,
    /// What it does.
    pub effect: OperationEffect,
    types: PhantomData<fn(Q) -> A>,
}

/// For whom an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationReach {
    /// Operators of the whole fleet alone.
    WholeFleet,
    /// Those of some nodes too: its handler shows and changes nothing of others.
    NodesInScope,
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationEffect {
    /// It changes nothing.
    Reads,
    /// It stores what nobody sees before another operation names it; it has no entry in the audit log.
    Stages,
    /// It changes something, and has an entry in the audit log.
    Writes,
}

impl<Q, A> Operation<Q, A> {
    /// What is not said of an operation is the narrowest: what is no `GET` writes and is an admin's, and all is for
    /// operators of the whole fleet.
    const fn new(method: Method, path: &'static str, within: Duration) -> Operation<Q, A> {
        let (reach, effect) = (OperationReach::WholeFleet, OperationEffect::Writes);
        Operation { method, path, within, role: OperatorRole::Admin, reach, effect, types: PhantomData }
    }

    /// It only looks, and any operator may.
    pub(super) const fn reads(mut self) -> Operation<Q, A> {
        self.effect = OperationEffect::Reads;
        self.role = OperatorRole::Viewer;
        self
    }

    /// It stores what nobody sees before another operation names it.
    pub(super) const fn stages(mut self) -> Operation<Q, A> {
        self.effect = OperationEffect::Stages;
        self.role = OperatorRole::Operator;
        self
    }

    /// An operator may do it who is no admin.
    pub(super) const fn by_operators(mut self) -> Operation<Q, A> {
        self.role = OperatorRole::Operator;
        self
    }

    /// It is of the caller alone: any operator may do it, of some nodes too.
    pub(super) const fn by_anybody(mut self) -> Operation<Q, A> {
        self.role = OperatorRole::Viewer;
        self.in_scope()
    }

    /// It is for operators of some nodes too: the handler keeps to those.
    pub(super) const fn in_scope(mut self) -> Operation<Q, A> {
        self.reach = OperationReach::NodesInScope;
        self
    }

    pub(super) const fn get(path: &'static str) -> Operation<Q, A> {
        Operation::new(Method::GET, path, CALL).reads()
    }

    pub(super) const fn delete(path: &'static str) -> Operation<Q, A> {
        Operation::new(Method::DELETE, path, CALL)
    }

    pub(super) const fn post(path: &'static str) -> Operation<Q, A> {
        Operation::new(Method::POST, path, CALL)
    }

    pub(super) const fn transfer(path: &'static str) -> Operation<Q, A> {
        Operation::new(Method::POST, path, TRANSFER)
    }

    fn has_body(&self) -> bool {
        self.method == Method::POST
    }
}

impl<Q: Serialize, A> Operation<Q, A> {
    /// The path and query of a request.
    ///
    /// # Errors
    /// Never for the requests of this port: what is not in a body is flat.
    pub fn uri(&self, request: &Q) -> Result<String, serde_urlencoded::ser::Error> {
        let mut path = self.path.to_owned();
        if self.has_body() && !path.contains('{') {
            return Ok(path);
        }
        let form = serde_urlencoded::to_string(request)?;
        let mut query = Vec::new();
        for pair in form.split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let slot = format!("{{{name}}}");
            if path.contains(&slot) {
                path = path.replace(&slot, &value.replace('+', "%20"));
            } else if !pair.is_empty() && !self.has_body() {
                query.push(pair);
            }
        }
        Ok(if query.is_empty() { path } else { format!("{path}?{}", query.join("&")) })
    }

    /// The body of a request; empty for a method without one.
    ///
    /// # Errors
    /// Never for the requests of this port.
    pub fn body(&self, request: &Q) -> Result<Vec<u8>, body::BodyError> {
        if self.has_body() { body::encode(request) } else { Ok(Vec::new()) }
    }
}

impl<Q: DeserializeOwned, A> Operation<Q, A> {
    /// Puts a request together again. `segments` are the path's, as sent; an empty body counts
    /// as one without fields.
    ///
    /// # Errors
    /// [`Code::BadQuery`] and [`Code::BadBody`], with what is wrong.
    pub(crate) fn read(
        &self,
        segments: &[(&'static str, String)],
        query: &str,
        body: &[u8],
    ) -> Result<Q, Problem> {
        if !self.has_body() {
            let mut form = query.to_owned();
            for (name, segment) in segments {
                form.push_str(&format!("&{name}={}", segment.replace('+', "%2B")));
            }
            let bad = |error: serde_urlencoded::de::Error| Problem::new(Code::BadQuery, error.to_string());
            return serde_urlencoded::from_str(&form).map_err(bad);
        }
        let body = if body.is_empty() { b"{}" } else { body };
        if segments.is_empty() {
            return Ok(body::decode(body)?);
        }
        let mut fields: Map<String, Value> = body::decode(body)?;
        let own = |(name, segment): &(&str, String)| ((*name).to_owned(), percent::decode(segment).into());
        fields.extend(segments.iter().map(own));
        serde_json::from_value(fields.into()).map_err(|error| Problem::new(Code::BadBody, error.to_string()))
    }
}

/// The segments of `path` that `pattern` names, none of them empty; `None` when the path is
/// another one.
pub(crate) fn segments(pattern: &'static str, path: &str) -> Option<Vec<(&'static str, String)>> {
    let mut found = Vec::new();
    let mut given = path.split('/');
    for wanted in pattern.split('/') {
        let segment = given.next()?;
        match wanted.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
            Some(name) if !segment.is_empty() => found.push((name, segment.to_owned())),
            None if wanted == segment => {}
            _ => return None,
        }
    }
    given.next().is_none().then_some(found)
}

/// A request that says nothing.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Empty {}

/// The most items in one answer: 1 to [`MAX_PAGE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "usize")]
pub struct Limit(usize);

impl Limit {
    /// The number.
    pub fn get(self) -> usize {
        self.0
    }
}

impl Default for Limit {
    fn default() -> Limit {
        Limit(MAX_PAGE)
    }
}

impl From<usize> for Limit {
    fn from(limit: usize) -> Limit {
        Limit(limit.clamp(1, MAX_PAGE))
    }
}

/// One answer of several to a question. The next is asked for with `from`.
pub trait Page {
    /// What is listed.
    type Item;

    /// Where the next page begins, if there is one.
    fn next_page(&self) -> Option<String>;

    /// The items.
    fn items(self) -> Vec<Self::Item>;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::{Operation, segments};
    use crate::api::objects::{OBJECT, ObjectName};
    use crate::api::work::{BEGIN_TASK, CONTROL_WORKFLOW, ControlWorkflow, Turn};
    use crate::api::{Matching, NODES};

    /// What a server reads of what a client sends.
    fn sent<Q: serde::Serialize + serde::de::DeserializeOwned, A>(
        operation: &'static Operation<Q, A>,
        request: &Q,
    ) -> (String, Q) {
        let uri = operation.uri(request).unwrap();
        let (path, query) = uri.split_once('?').unwrap_or((&uri, ""));
        let found = segments(operation.path, path).unwrap();
        let read = operation.read(&found, query, &operation.body(request).unwrap()).unwrap();
        (uri, read)
    }

    #[test]
    fn both_ends_mean_the_same_request() {
        let odd = ["web 1+2/é%", "Kind", "a&b=c?", "{name}"].map(str::to_owned);
        let [node, kind, namespace, name] = odd;
        let object = ObjectName { node, kind, namespace, name };
        assert_eq!(sent(&OBJECT, &object).1, object);
        let matching = Matching { selector: Some("a=b,!c +d".to_owned()), ..Matching::default() };
        let (uri, read) = sent(&NODES, &matching);
        assert_eq!(
            (uri.as_str(), read.selector),
            ("/v1/nodes?match=a%3Db%2C%21c+%2Bd&limit=1000", matching.selector)
        );
        let turn = ControlWorkflow { include_unknown: true, ..ControlWorkflow::new("w/1", Turn::Resume) };
        let (uri, read) = sent(&CONTROL_WORKFLOW, &turn);
        assert_eq!((uri.as_str(), read), ("/v1/workflows/w%2F1/resume", turn));
    }

    #[test]
    fn a_path_is_one_operation_or_none() {
        assert_eq!(segments(BEGIN_TASK.path, "/v1/tasks"), Some(Vec::new()));
        for other in ["/v1/task", "/v1/tasks/", "/v1/tasks/t1", "v1/tasks"] {
            assert_eq!(segments(BEGIN_TASK.path, other), None, "{other}");
        }
    }
}
