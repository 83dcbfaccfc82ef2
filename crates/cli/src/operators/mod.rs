//! `muster operator`: who operates the fleet, each with a role and a scope (OPS-5).

mod add;
mod files;
mod login;
pub(crate) mod renew;

use clap::{Args, Subcommand};
use model::time::when;
use server::api::operation::Empty;
use server::api::operators::{CallerView, OPERATORS, OperatorName, OperatorView, REVOKE_OPERATOR, WHOAMI};

use self::add::AddArgs;
use self::login::{LoginArgs, RequestArgs};
use self::renew::OperatorTrustArgs;
use crate::clock::now;
use crate::connect::Connect;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::screen::{Mark, Screen};
use crate::table::table;

const AFTER: &str = "\
Roles: a viewer sees; an operator also has nodes run, changes objects and tasks, and publishes; an admin also says
who belongs to the fleet and who operates it. With --nodes somebody sees and changes those nodes alone.
docs/operators.md has what each may ask for.

Examples:
  muster operator request alice                         on alice's machine: alice.key stays there
  muster operator add alice --role admin --csr alice.csr
  muster operator login alice.json --key alice.key      on alice's machine: writes operator.json
  muster operator add eu-oncall --role operator --nodes @eu --token --valid 30d
  muster operator list
  muster operator renew                                 after `muster key rotate operator-authority`
  muster operator revoke alice --yes                    none of alice's credentials opens anything from then on";

/// Arguments of `muster operator`.
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub struct OperatorArgs {
    #[command(flatten)]
    connect: Connect,
    #[command(subcommand)]
    what: OperatorVerb,
}

#[derive(Debug, Subcommand)]
enum OperatorVerb {
    /// Add an operator, or another credential of one that there is
    Add(AddArgs),
    /// List the operators with their credentials; those who were revoked too
    List,
    /// Revoke an operator: all of his credentials, at once
    Revoke {
        /// The name
        name: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Make a key here, and the request that an admin needs; works offline
    Request(RequestArgs),
    /// Put the key and what an admin sent into the credentials that verbs use
    Login(LoginArgs),
    /// Show who the control plane takes these credentials for
    Whoami,
    /// Put another certificate into these credentials, of the CA that certifies operators now
    Renew,
    /// Have these credentials, of before they held one, go by the fleet's trust document
    Trust(OperatorTrustArgs),
}

/// Does the verb.
///
/// # Errors
/// When a file cannot be read or written, or the control plane refuses.
pub async fn run(args: &OperatorArgs, screen: Screen) -> Result<Exit, Failure> {
    match &args.what {
        OperatorVerb::Add(add) => add::run(add, &args.connect, screen).await,
        OperatorVerb::Request(request) => login::request(request, screen),
        OperatorVerb::Login(login) => login::run(login, screen).await,
        OperatorVerb::Renew => renew::run(&args.connect, screen).await,
        OperatorVerb::Trust(trust) => renew::trust(trust, &args.connect, screen).await,
        OperatorVerb::List => {
            let operators = args.connect.dial().await?.call(&OPERATORS, Empty {}).await?;
            Ok(screen.result(&operators, || list(&operators, screen))?)
        }
        OperatorVerb::Revoke { name, yes } => {
            let operator = args.connect.dial().await?;
            screen.confirm(&format!("{name} will be revoked, with all credentials"), *yes)?;
            let name = OperatorName { name: name.clone() };
            let revoked = operator.call(&REVOKE_OPERATOR, name).await?;
            Ok(screen.result(&revoked, || {
                format!("{} is revoked; tasks that {} began go on\n", revoked.name, revoked.name)
            })?)
        }
        OperatorVerb::Whoami => {
            let caller = args.connect.dial().await?.call(&WHOAMI, Empty {}).await?;
            Ok(screen.result(&caller, || whoami(&caller))?)
        }
    }
}

/// One line of who somebody is.
fn whoami(caller: &CallerView) -> String {
    let CallerView { name, role, nodes } = caller;
    format!("{name}, {role} of {}\n", nodes.as_deref().unwrap_or("the whole fleet"))
}

fn list(operators: &[OperatorView], screen: Screen) -> String {
    let now = now();
    let row = |operator: &OperatorView| {
        let credentials = operator.credentials.iter().map(|credential| {
            let ends = when(credential.expires, now);
            format!("{} {}.. until {ends}", credential.kind.as_str(), credential.id)
        });
        let state = match (operator.revoked, &operator.revoked_by) {
            (Some(at), by) => {
                let by = by.as_deref().unwrap_or("somebody");
                screen.mark(Mark::Dim, &format!("revoked by {by}, {}", when(at, now)))
            }
            (None, _) => credentials.collect::<Vec<_>>().join(", "),
        };
        let state = if state.is_empty() && operator.created.is_none() {
            "certificate of operator.json, which `muster server` wrote".to_owned()
        } else {
            state
        };
        [
            operator.name.clone(),
            operator.role.to_string(),
            operator.nodes.clone().unwrap_or_else(|| "*".to_owned()),
            operator.created_by.clone(),
            state,
        ]
    };
    table(&["OPERATOR", "ROLE", "NODES", "ADDED BY", "CREDENTIALS"], operators.iter().map(row))
}
