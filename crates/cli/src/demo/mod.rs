//! stub
use clap::Args;
use crate::{exit::Exit, failure::Failure, screen::Screen};
/// x
#[derive(Args, Debug)]
pub struct DemoArgs {}
/// x
#[expect(clippy::unused_async)]
pub async fn run(_: DemoArgs, _: Screen) -> Result<Exit, Failure> { Ok(Exit::Ok) }
