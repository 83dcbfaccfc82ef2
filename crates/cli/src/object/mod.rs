//! `muster object`: the objects that are synchronized with nodes, and how that fares.

mod apply;
mod delete;
mod fields;
mod name;
mod operation;
mod read;
mod show;
mod status;

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use model::replication::ObjectOperation;
use model::text::printable;
use server::api::objects::{Mapping, OBJECTS, ObjectsQuery};

use crate::connect::Connect;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::listing::PagedTable;
use crate::screen::Screen;
use crate::whom;

pub use apply::{exit, results_text};
use delete::DeleteArgs;
pub use fields::{changes, fields};
pub use name::{NameError, ObjectRef, get};
use operation::OperationArgs;
pub use read::{Mistake, ReadError, ReadManifest, Source, read};
pub(crate) use read::{notation, of_file};
use show::{COLUMNS, row};
pub use show::{list, none, show};
pub(crate) use status::known;
pub use status::{counted, is_wrong, mark, one, table_of};

const AFTER: &str = "\
A SELECTOR names nodes: `muster help selectors`. An object is KIND/NAME or KIND/NAMESPACE/NAME;
without a namespace the one of the node's name is looked at too.

Examples:
  muster object diff -f manifests/              what an apply would change
  muster object apply -f manifests/             make it so, on the node that each namespace names
  muster object apply -f app.yaml --node web-1.example.com
  muster object list 'web-*' --kind Application
  muster object get web-1.example.com Application/shop
  muster object delete web-1.example.com Application/shop
  muster object status                          who is behind or differs, why, what next
  muster object resync web-1.example.com        compare everything anew
  muster object sync shop-1.example.com Application/shop     ask the object's owner to act";

/// Arguments of `muster object`.
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub struct ObjectArgs {
    #[command(flatten)]
    connect: Connect,
    #[command(subcommand)]
    what: ObjectVerb,
}

#[derive(Debug, Subcommand)]
enum ObjectVerb {
    /// List objects of nodes
    #[command(after_help = "Ends with 0 also when there is none; with 1 when the selector means no node.")]
    List {
        /// Of which nodes [default: all]
        selector: Option<String>,
        /// Only of this kind
        #[arg(long)]
        kind: Option<String>,
        /// Only in this namespace
        #[arg(long, value_name = "NS")]
        namespace: Option<String>,
    },
    /// Show an object: its manifest, and what its node says of it
    Get {
        /// Hostname or id
        node: String,
        /// KIND/NAME or KIND/NAMESPACE/NAME
        object: ObjectRef,
    },
    /// Make objects so as manifests say
    #[command(after_help = APPLY_AFTER)]
    Apply {
        #[command(flatten)]
        manifests: Manifests,
        /// Say what would become of them, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Show what an apply would change
    #[command(after_help = "Ends with 2 when something differs.")]
    Diff {
        #[command(flatten)]
        manifests: Manifests,
    },
    /// Delete objects; more than one are asked for a yes
    #[command(after_help = DELETE_AFTER)]
    Delete(DeleteArgs),
    /// Compare everything with nodes anew, and mend what differs
    Resync {
        /// Which nodes
        selector: String,
        /// Let go what the source no longer has, however much it is
        #[arg(long)]
        approve_deletions: bool,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Ask the owner of an object on an autonomous node to make the world as the object says
    #[command(after_help = OPERATION_AFTER)]
    Sync(OperationArgs),
    /// Ask the owner of an object on an autonomous node to look anew at it
    #[command(after_help = OPERATION_AFTER)]
    Refresh(OperationArgs),
    /// Show how synchronization fares, and what to do where it does not
    #[command(after_help = "Ends with 3 when a node is out of sync, or two agents use one identity.")]
    Status {
        /// Of which nodes [default: all]
        selector: Option<String>,
        /// Only those that are not in sync
        #[arg(long)]
        wrong: bool,
    },
}

const OPERATION_AFTER: &str = "\
The node's release must allow it: `operations` in `sync` of the fleet repo. The object is not
changed. The operation is done for Muster when the owner of the object has it: what came of it
there, the object's status says.

Ends with 0 when it was handed over, 3 when it could not be, 5 when the node refused it.";

const APPLY_AFTER: &str = "\
Every mistake in the manifests is shown at once, and then nothing is sent.
Ends with 3 when some objects were refused, 5 when all were; --dry-run with 2 when something
would change.";

const DELETE_AFTER: &str = "\
One object is deleted at once, without a question: its name was said. Of more than one the
number is shown and a yes asked for; --yes says it beforehand. What is deleted goes from its
node too; --dry-run says what would.

Ends with 3 when some could not be deleted, 5 when none could or nobody said yes; --dry-run
with 2 when something would go.";

/// Where manifests are, and whose they are.
#[derive(Args, Debug)]
struct Manifests {
    /// YAML or JSON: a file, a directory with all that is below it, or - for standard input
    #[arg(short, long = "file", value_name = "FILE|DIR|-", required = true)]
    files: Vec<PathBuf>,
    /// They are all for this node: hostname or id
    #[arg(long, conflicts_with = "mapping")]
    node: Option<String>,
    /// How each finds its node
    #[arg(long, value_enum, default_value_t)]
    mapping: MappingArg,
}

/// How a manifest finds its node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum MappingArg {
    /// Its namespace is the node's name
    #[default]
    Namespace,
    /// Its `spec.destination.name` is
    Destination,
}

impl From<MappingArg> for Mapping {
    fn from(mapping: MappingArg) -> Mapping {
        match mapping {
            MappingArg::Namespace => Mapping::Namespace,
            MappingArg::Destination => Mapping::Destination,
        }
    }
}

impl Manifests {
    fn whose(&self) -> Source<'_> {
        Source { files: &self.files, node: self.node.as_deref(), mapping: self.mapping.into() }
    }
}

/// Does the verb.
///
/// # Errors
/// When manifests have mistakes, or the control plane cannot be asked.
pub async fn run(args: &ObjectArgs, screen: Screen) -> Result<Exit, Failure> {
    let connect = &args.connect;
    match &args.what {
        ObjectVerb::List { selector, kind, namespace } => {
            selector.as_deref().map(whom::check).transpose()?;
            let (selector, kind, namespace) = (selector.clone(), kind.clone(), namespace.clone());
            let asked = ObjectsQuery { selector, kind, namespace, ..ObjectsQuery::default() };
            let operator = connect.dial().await?;
            let mut pages = operator.pages(&OBJECTS, asked.clone());
            let (mut listing, mut found) = (PagedTable::new(screen, &COLUMNS), false);
            while let Some(page) = pages.next().await? {
                found |= !page.objects.is_empty();
                listing.page(&page.objects, |view| row(view, screen))?;
            }
            // That nobody is meant is another thing than that nobody has any.
            if let (Some(selector), false) = (&asked.selector, found) {
                whom::select(&operator, selector).await?;
            }
            match found || screen.is_json() {
                true => listing.end()?,
                false => screen.text(&printable(&none(&asked)))?,
            }
            Ok(Exit::Ok)
        }
        ObjectVerb::Get { node, object } => {
            let view = name::find(&connect.dial().await?, node, object).await?;
            Ok(screen.result(&view, || show(&view, screen))?)
        }
        ObjectVerb::Apply { manifests, dry_run } => {
            apply::apply(connect, &manifests.whose(), *dry_run, screen).await
        }
        ObjectVerb::Diff { manifests } => apply::diff(connect, &manifests.whose(), screen).await,
        ObjectVerb::Delete(args) => delete::delete(connect, args, screen).await,
        ObjectVerb::Resync { selector, approve_deletions, yes } => {
            status::resync(connect, selector, *approve_deletions, *yes, screen).await
        }
        ObjectVerb::Sync(args) => operation::request(connect, ObjectOperation::Sync, args, screen).await,
        ObjectVerb::Refresh(args) => {
            operation::request(connect, ObjectOperation::Refresh, args, screen).await
        }
        ObjectVerb::Status { selector, wrong } => {
            status::status(connect, selector.as_deref(), *wrong, screen).await
        }
    }
}
