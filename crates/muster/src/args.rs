//! The command line: every verb with its arguments.

use bench::Bench;
use clap::{Parser, Subcommand};
use cli::logs::{FORMAT_ENV, LogFormat};
use cli::workflow;
use cli::{
    audit, backup, beacon, check, closure, diff, explain, key, node, object, operators, prove, proxy,
    publish, query, rehearse, release, render, rollout, run, secret, server, sign, status, task, token,
    verify,
};
use demo::DemoArgs;

use crate::help;

const AFTER: &str = "\
Daily verbs: check, render, explain, diff, rehearse, publish, status, query. Stored things:
node, object, task, workflow, run, release, rollout, token, key, secret, closure, proxy, prove,
verify.
System: server, backup, restore, demo, bench. On the hosts: muster-agent.

Exit codes: 0 done or nothing differs, 1 error, 2 differences, 3 some nodes failed,
4 the control plane does not answer, 5 refused by policy.

Examples:
  muster demo                         see all of it on this machine, in a minute
  muster server                       found a fleet in ./muster-data and serve it
  muster publish --repo fleet         sign and publish what a folder declares
  muster token mint web-1.example.com a token, with which that host joins
  muster status                       how the fleet does, and why
  muster help E012                    what a code means";

/// Looks after fleets of machines that nobody can reach.
#[derive(Debug, Parser)]
#[command(
    name = "muster",
    version,
    about = "Looks after fleets of machines that nobody can reach",
    disable_help_subcommand = true,
    arg_required_else_help = true,
    after_help = AFTER,
    max_term_width = 100
)]
pub struct Cli {
    /// Print the result as JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// Log more to stderr; twice for everything
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// How logs are written to stderr
    #[arg(long, global = true, value_enum, value_name = "FORMAT", default_value_t, env = FORMAT_ENV, hide_env_values = true)]
    pub log_format: LogFormat,
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Find every mistake in a fleet repo
    Check(check::CheckArgs),
    /// Show what one node gets, bound as the node binds it
    Render(render::RenderArgs),
    /// Show which layer of the fleet repo set a value of a node, where, and who won
    Explain(explain::ExplainArgs),
    /// Show what a publish would change, on every node
    Diff(diff::DiffArgs),
    /// Play the rollout of a fleet repo beforehand: who changes when, and what stops it
    Rehearse(rehearse::RehearseArgs),
    /// Sign what a fleet repo declares and point the fleet to it
    Publish(publish::PublishArgs),
    /// Sign a release that somebody else prepared, where its channel asks for several signers
    Sign(sign::SignArgs),
    /// Sign that what is published still counts, so that nodes go on taking actions
    Beacon(beacon::BeaconArgs),
    /// Show how the fleet does: what is not green, why, since when, what next
    Status(status::StatusArgs),
    /// List, show, remove or run nodes
    Node(node::NodeArgs),
    /// List runs, or show what one did
    Run(run::RunArgs),
    /// List, show, apply, compare or delete synchronized objects; how synchronization fares
    Object(object::ObjectArgs),
    /// Run a command or a named action on many nodes, and follow what becomes of it
    Task(task::TaskArgs),
    /// Ask nodes something that they know of themselves now
    Query(query::QueryArgs),
    /// Run tasks one after another, with gates between them
    Workflow(workflow::WorkflowArgs),
    /// List releases, or show one
    Release(release::ReleaseArgs),
    /// Show how a release reaches its nodes, why a node waits, and tell a rollout how to go on
    Rollout(rollout::RolloutArgs),
    /// Mint the token with which a host joins
    Token(token::TokenArgs),
    /// Show, make, rotate or retire the keys that nodes believe
    Key(key::KeyArgs),
    /// Set, rotate or list secrets; show who can open them, and trust a node's key
    Secret(secret::SecretArgs),
    /// Show and export what leads from a path of a node to the fleet's root
    Prove(prove::ProveArgs),
    /// Check such an export offline; or show that two hosts were told two stories
    Verify(verify::VerifyArgs),
    /// Add, list or revoke who operates the fleet, each with a role and a scope
    Operator(operators::OperatorArgs),
    /// List or verify the log of what operators did
    Audit(audit::AuditArgs),
    /// Upload closures of NixOS for nodes that reach no cache
    Closure(closure::ClosureArgs),
    /// Issue the certificate of a proxy that ends TLS for nodes
    Proxy(proxy::ProxyArgs),
    /// Run the control plane
    Server(server::ServerArgs),
    /// Put a control plane's directory into one file, while it runs
    Backup(backup::BackupArgs),
    /// Make a control plane's directory of a backup, or look into one
    Restore(backup::restore::RestoreArgs),
    /// Show all of Muster on this machine, with three real agents
    Demo(DemoArgs),
    /// Measure speed and memory, each beside its floor
    #[command(subcommand)]
    Bench(Bench),
    /// Explain a verb, or a code from an error
    Help(help::HelpArgs),
}
