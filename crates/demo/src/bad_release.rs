//! The demo's bad release: it stops in its first wave, and undoes itself.

use std::fs;
use std::time::Instant;

use ::rollout::{NodeRolloutState, RolloutState};
use server::Credentials;
use server::api::rollouts::{EXPLAIN_ROLLOUT, ROLLOUT, RolloutView};

use crate::board::Board;
use crate::error::DemoError;
use crate::steps::{Demo, NODES, VICTIM};
use cli::failure::Failure;
use cli::operator::Operator;
use cli::rollout;
use cli::screen::Screen;

/// The channel of the demo's nodes.
const CHANNEL: &str = "demo";
/// How releases reach it from now on: one web server first, and only if its page is right the others.
const POLICY: &str = r#"rollouts:
  demo:
    waves:
      - {name: canary, nodes: [web-1.demo], gate: {soak: 2s, success: 100%}}
      - {name: rest, gate: {soak: 1s}}
    onFailure: rollback
    confirm: {window: 1m}
probes:
  page:
    nodes: ["web-*.demo"]
    command: [/bin/sh, -c, 'grep -q "looked after by Muster" "$MUSTER_ROOT/srv/demo/index.html"']
    every: 1s
    timeout: 1s
    grace: 1s
    sustained: 1s
"#;
/// The page, in the fleet repo and on a web server.
const PAGE: (&str, &str) = ("modules/web/files/index.html", "srv/demo/index.html");
/// What the bad release makes of it.
const BROKEN: &str = "<!doctype html>\n<p>under construction\n";

impl Demo<'_> {
    /// A release that breaks the page goes out, reaches one node, and is undone there.
    pub(super) async fn bad_release(
        &mut self,
        operator: &Operator,
        credentials: Credentials,
    ) -> Result<(), Failure> {
        let page = self.dirs.fleet().join(PAGE.0);
        // Another fleet repo may be shown, which has no such page.
        let Ok(good) = fs::read_to_string(&page) else { return Ok(()) };
        let policy = self.dirs.fleet().join("rollouts.yaml");
        self.board.say("\n    a canary first, and a probe that looks at its page: rollouts.yaml")?;
        self.board.say(&format!("    then the page is broken: {}", page.display()))?;
        fs::write(&policy, POLICY).map_err(DemoError::using(&policy))?;
        fs::write(&page, BROKEN).map_err(DemoError::using(&page))?;
        self.publish_as("a release that breaks a page was published", credentials).await?;
        let began = Instant::now();
        let step = format!("{VICTIM} found out, went back by itself, and nobody else got the release");
        let undone = async |_: &mut Board| {
            let view = operator.call(&ROLLOUT, CHANNEL).await?;
            Ok(if is_undone(&view) { Ok(view) } else { Err(rollout::line(&view)) })
        };
        let view = self.see(&step, undone).await?;
        self.board.done(&step, began.elapsed())?;
        for name in [NODES[0], NODES[1]] {
            let shown = self.root_of(name).and_then(|root| fs::read_to_string(root.join(PAGE.1)).ok());
            if shown.as_ref() != Some(&good) {
                return Err(DemoError::not_seen(&step, format!("the page of {name} is {shown:?}")).into());
            }
        }
        let screen = Screen::of_process(false);
        self.shown(&format!("muster rollout show {CHANNEL}"), &rollout::show(&view, screen))?;
        let why = operator.call(&EXPLAIN_ROLLOUT, VICTIM).await?;
        let why = why.as_ref().map(rollout::explained).unwrap_or_default();
        self.shown(&format!("muster rollout explain {VICTIM}"), &why)?;
        // What the user publishes next is to be a good one.
        fs::write(&page, good).map_err(DemoError::using(&page))?;
        Ok(())
    }
}

/// The rollout is back where it began, and one node alone had begun.
fn is_undone(view: &RolloutView) -> bool {
    let began = view.nodes.iter().filter(|(state, _)| **state != NodeRolloutState::Pending);
    view.state == RolloutState::Reverted && began.map(|(_, count)| count).sum::<usize>() == 1
}
