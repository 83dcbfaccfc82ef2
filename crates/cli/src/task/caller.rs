//! [`Caller`]: questions to a control plane that may be away for a while.

use std::time::Duration;

use server::api::work::WorkQuery;

use super::ticker::Ticker;
use crate::connect::Connect;
use crate::operator::{Operator, OperatorCallError};

/// How long the control plane holds a question while there is nothing new, in seconds; well below
/// the time for an answer.
const NEWS_SECS: u64 = 8;
/// The shortest time between two questions.
const PACE: Duration = Duration::from_millis(500);
/// The longest time between two questions, however many nodes there are.
const MAX_PACE: Duration = Duration::from_secs(30);
/// What each node adds to the time between two questions while its output is shown.
const PACE_PER_NODE: Duration = Duration::from_millis(5);
/// How often a control plane that does not answer is asked again.
const MAX_REDIALS: u32 = 20;
/// The longest time before it is asked again.
const REDIAL: Duration = Duration::from_secs(10);

/// A connection that is made anew while something is followed.
pub(crate) struct Caller<'a> {
    connect: &'a Connect,
    operator: Operator,
}

impl<'a> Caller<'a> {
    pub(crate) fn new(connect: &'a Connect, operator: Operator) -> Caller<'a> {
        Caller { connect, operator }
    }

    pub(crate) fn operator(&self) -> &Operator {
        &self.operator
    }

    /// Asks, and asks again when nobody answers: what is followed goes on meanwhile.
    pub(crate) async fn ask<T>(
        &mut self,
        ticker: &mut Ticker,
        question: impl AsyncFn(&Operator) -> Result<T, OperatorCallError>,
    ) -> Result<T, OperatorCallError> {
        let mut tries = 0;
        loop {
            match question(&self.operator).await {
                Err(OperatorCallError::Unreachable(_)) if tries < MAX_REDIALS => {
                    tries += 1;
                    ticker.show(&format!(
                        "the control plane does not answer; it is asked again ({tries} of {MAX_REDIALS})"
                    ));
                    tokio::time::sleep(REDIAL.min(PACE * tries)).await;
                    if let Ok(operator) = self.connect.dial().await {
                        self.operator = operator;
                    }
                }
                answer => return answer,
            }
        }
    }
}

/// Waits a little between two questions.
pub(crate) async fn wait_between_requests(nodes: usize) {
    let more = PACE_PER_NODE.saturating_mul(u32::try_from(nodes).unwrap_or(u32::MAX));
    tokio::time::sleep((PACE + more).min(MAX_PACE)).await;
}

/// A question for what is new of a task or a workflow since a version.
pub(crate) fn changes_after(id: &str, after: u64) -> WorkQuery {
    WorkQuery { wait: NEWS_SECS, after: Some(after), ..id.into() }
}
