//! `muster node list --failed-joins`: hosts that could not join, and why (ENR-4).

use server::api::lists::{FAILED_JOINS, FailedJoinsAsked};
use store::{FailedJoinRecord, JoinFailureKind};

use crate::clock::{ago, now};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::operator::Operator;
use crate::screen::Screen;
use crate::table::table;

const COLUMNS: [&str; 5] = ["HOST", "WHEN", "WHAT", "CODE", "WHY"];

pub(super) async fn list(operator: &Operator, screen: Screen) -> Result<Exit, Failure> {
    let joins = operator.call(&FAILED_JOINS, FailedJoinsAsked::default()).await?;
    Ok(screen.result(&joins, || match joins.as_slice() {
        [] => "no host said that it could not join\n".to_owned(),
        joins => table(&COLUMNS, joins.iter().map(row)),
    })?)
}

fn row(record: &FailedJoinRecord) -> [String; COLUMNS.len()] {
    let FailedJoinRecord { received, join, .. } = record;
    let what = match join.failure {
        JoinFailureKind::TrustError => "trust error",
        JoinFailureKind::EnrollmentFailed => "enrollment failed",
    };
    [
        join.hostname.to_string(),
        format!("{} ago", ago(*received, now())),
        what.to_owned(),
        join.code.clone().unwrap_or_default(),
        model::text::one_line(&join.message).to_string(),
    ]
}
