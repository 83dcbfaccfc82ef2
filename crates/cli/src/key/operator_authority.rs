//! `muster key rotate operator-authority` and `retire`: another CA of operators' certificates (OPS-5).
//!
//! Nobody but the control plane believes that CA, so no trust document names it and no root key signs. The control plane
//! makes it; operators follow with `muster operator renew`.

use serde::Serialize;
use server::api::operation::Empty;
use server::api::operators::{
    OPERATOR_AUTHORITIES, OperatorAuthorityView, RETIRE_OPERATOR_AUTHORITY, ROTATE_OPERATOR_AUTHORITY,
};
use wire::Code;

use super::{FleetKeyError, RetireArgs, RotateArgs};
use crate::connect::Connect;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::next_step::muster;
use crate::operator::{Operator, OperatorCallError};
use crate::operators::renew::renew;
use crate::screen::{Screen, plural};

/// How it is called on the command line.
pub(super) const NAME: &str = "operator-authority";
/// Operators that a line names.
const NAMED: usize = 10;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OperatorAuthorityReport {
    #[serde(flatten)]
    authority: OperatorAuthorityView,
    next: Vec<String>,
}

/// The CAs of operators; `None` of a control plane from before they could be replaced, and for who may not see them.
pub(super) async fn view(operator: &Operator) -> Result<Option<OperatorAuthorityView>, OperatorCallError> {
    match operator.call(&OPERATOR_AUTHORITIES, Empty {}).await {
        Ok(view) => Ok(Some(view)),
        Err(error) if error.is(Code::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

pub(super) async fn rotate(args: &RotateArgs, connect: &Connect, screen: Screen) -> Result<Exit, Failure> {
    if args.to.is_some() || args.root_key.is_some() || args.reject_before.is_some() || args.new_chain {
        return Err(FleetKeyError::OwnAuthority.into());
    }
    let operator = connect.dial().await?;
    let before = operator.call(&OPERATOR_AUTHORITIES, Empty {}).await?;
    if args.drop_previous {
        let what = "certificates of operators that were issued until now open nothing any more, copies of operator.json \
                    elsewhere among them; tokens count on";
        screen.confirm(what, args.yes)?;
    } else if before.previous.is_some() {
        let what = format!("the change before is not finished. {}", shut_out(&before));
        screen.confirm(&what, args.yes)?;
    }
    let mut authority = operator.call(&ROTATE_OPERATOR_AUTHORITY, Empty {}).await?;
    // Who asked goes on, wherever his credentials are: the control plane renews those in its directory alone.
    let (file, credentials) = connect.credentials()?;
    renew(&operator, &file, &credentials).await?;
    if args.drop_previous {
        authority = operator.call(&RETIRE_OPERATOR_AUTHORITY, Empty {}).await?;
    }
    let mut next = Vec::new();
    if args.drop_previous {
        next.push("for each operator who had a certificate: muster operator add NAME --role ROLE".to_owned());
        next.push(
            "who may have had the CA may have added operators and tokens: compare muster operator list"
                .to_owned(),
        );
    } else {
        next.push(
            "each operator with a certificate, where his credentials are: muster operator renew".to_owned(),
        );
        next.push(format!(
            "once {} names no operator with a certificate of the CA before: {}",
            muster("key show"),
            muster("key retire operator-authority")
        ));
    }
    let report = OperatorAuthorityReport { authority, next };
    Ok(screen.result(&report, || text(&report))?)
}

pub(super) async fn retire(args: &RetireArgs, connect: &Connect, screen: Screen) -> Result<Exit, Failure> {
    if args.root_key.is_some() {
        return Err(FleetKeyError::OwnAuthority.into());
    }
    let operator = connect.dial().await?;
    let before = operator.call(&OPERATOR_AUTHORITIES, Empty {}).await?;
    if !before.of_before.is_empty() {
        screen.confirm(&shut_out(&before), args.yes)?;
    }
    let authority = operator.call(&RETIRE_OPERATOR_AUTHORITY, Empty {}).await?;
    let report = OperatorAuthorityReport { authority, next: Vec::new() };
    Ok(screen.result(&report, || text(&report))?)
}

/// Whom it is of that the CA before counts no more.
fn shut_out(view: &OperatorAuthorityView) -> String {
    match of_before(view) {
        Some(names) => format!("{names}, and can do nothing until he is added anew or has renewed his"),
        None => "Certificates of the CA before that count no more, in copies of operator.json among them"
            .to_owned(),
    }
}

/// Who has nothing but certificates of the CA before.
fn of_before(view: &OperatorAuthorityView) -> Option<String> {
    let first: Vec<&str> = view.of_before.iter().take(NAMED).map(String::as_str).collect();
    let more = if view.of_before.len() > first.len() { ", ..." } else { "" };
    let count = plural(view.of_before.len(), "operator");
    (!first.is_empty())
        .then(|| format!("{count} with a certificate of the CA before: {}{more}", first.join(", ")))
}

/// The CAs in lines.
pub(super) fn lines(view: &OperatorAuthorityView) -> String {
    let previous = view.previous.map(|key| format!(", previous {}", key.id())).unwrap_or_default();
    let waits = of_before(view).map(|names| format!("{names}\n")).unwrap_or_default();
    format!("{NAME} {}{previous}\n{waits}", view.current)
}

fn text(report: &OperatorAuthorityReport) -> String {
    let view = &report.authority;
    let previous = view.previous.map_or_else(
        || "no other counts".to_owned(),
        |key| format!("previous {}, which still counts", key.id()),
    );
    let next: String = report.next.iter().map(|next| format!("next: {next}\n")).collect();
    format!("{NAME} key {}; {previous}\n{next}", view.current.id())
}
