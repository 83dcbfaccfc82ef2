//! `muster publish --from FILE`: publishes what several people signed one after the other.

use std::path::Path;

use serde::Serialize;
use server::api::operation::Empty;
use server::api::{self, lists::ADD_LISTS};
use wire::Code;

use super::error::PublishError;
use super::request::{RequestedHeader, SigningRequest};
use crate::connect::Connect;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::operator::Operator;
use crate::screen::Screen;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PublishedRequest<'a> {
    seq: u64,
    headers: &'a [RequestedHeader],
}

pub(super) async fn run(file: &Path, connect: &Connect, yes: bool, screen: Screen) -> Result<Exit, Failure> {
    let request = SigningRequest::read(file).map_err(PublishError::Request)?;
    let (_, credentials) = connect.credentials()?;
    let operator = Operator::dial(&credentials).await?;
    let head = operator.call(&api::HEAD, Empty {}).await?;
    // By who may sign now, not as the file says.
    let headers = request.headers(&head.trust).map_err(PublishError::Request)?;
    let shown: String = headers.iter().map(RequestedHeader::line).collect();
    if let Some(lacking) = headers.iter().find(|header| !header.is_enough()) {
        let RequestedHeader { header, signed, need, others } = lacking;
        let (channel, have, others) = (header.channel.clone(), signed.len(), others.clone());
        return Err(PublishError::TooFew { channel, have, need: *need, others }.into());
    }
    if request.commit.expected_head != head.seq {
        return Err(PublishError::Overtaken(head.seq.unwrap_or(0)).into());
    }
    let seq = headers.first().map_or(0, |header| header.header.seq);
    screen.confirm(&format!("{shown}release {} -> {seq}", head.seq.unwrap_or(0)), yes)?;
    if request.lists.allowlist.is_some() || request.lists.revocations.is_some() {
        // First: who is out is out before anything new is given away.
        operator.call(&ADD_LISTS, request.lists).await?;
    }
    let seq = match operator.call(&api::COMMIT, request.commit).await {
        Ok(seq) => seq,
        Err(error) if error.is(Code::HeadMoved) => return Err(PublishError::Overtaken(seq).into()),
        Err(error) if error.is(Code::Incomplete) => return Err(PublishError::NotKept.into()),
        Err(error) => return Err(error.into()),
    };
    let view = PublishedRequest { seq, headers: &headers };
    Ok(screen.result(&view, || format!("{shown}published release {seq}\n"))?)
}
