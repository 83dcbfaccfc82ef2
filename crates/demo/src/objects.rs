//! The demo's objects: one goes down to a node and its status comes up, one comes up from a node
//! that is its own source of truth.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use model::condition::SyncState;
use server::api::objects::{APPLY, Apply, ApplyOutcome, Mapping, OBJECTS, ObjectName, ObjectsQuery, SYNC};

use crate::board::Board;
use crate::error::DemoError;
use crate::steps::{Demo, OBSERVER};
use cli::failure::Failure;
use cli::object::{self, Source};
use cli::operator::Operator;
use cli::screen::Screen;

/// The object that the operator applies.
const SHOP: &str = include_str!("../../../examples/objects/shop.yaml");
/// Where the release has nodes keep their objects.
const FOLDER: &str = "srv/sites";
/// What a tool on the node says of the object.
const STATUS: &str = "{\"visitors\": 12}\n";
/// What somebody tries out on the node that is its own source of truth.
const TRIAL: &str = "kind: Site\nmetadata: {name: trial}\nspec: {title: Only a try}\n";

impl Demo<'_> {
    /// An object goes down.
    pub(super) async fn objects_down(&mut self, operator: &Operator) -> Result<(), Failure> {
        let file = self.dirs.manifests().join("shop.yaml");
        write(&file, SHOP)?;
        let source = Source { files: std::slice::from_ref(&file), node: None, mapping: Mapping::Namespace };
        let given = object::read(&source)?;
        self.board.say(&format!("\n    $ muster object apply -f {}", file.display()))?;
        let began = Instant::now();
        for given in given {
            let apply = Apply {
                manifests: vec![given.value],
                node: None,
                mapping: Mapping::Namespace,
                dry_run: false,
                trace: None,
            };
            let results = operator.call(&APPLY, apply).await?.results;
            if results.iter().any(|done| done.outcome != ApplyOutcome::Created) {
                let so_far = object::results_text(&results, false, Screen::of_process(false));
                return Err(DemoError::not_seen("the object was applied", so_far).into());
            }
            let there = Path::new(FOLDER).join("site").join(&given.name.namespace).join("shop.yaml");
            let Some(path) = self.root_of(&given.name.node).map(|root| root.join(&there)) else { continue };
            let step = format!("the object arrived at {}, as /{}", given.name.node, there.display());
            let arrived = async |_: &mut Board| {
                let text = fs::read_to_string(&path).unwrap_or_default();
                Ok(if text.contains("The shop") { Ok(()) } else { Err("it is not there".to_owned()) })
            };
            self.see(&step, arrived).await?;
            self.board.done(&step, began.elapsed())?;
            self.status_up(operator, &given.name, &path).await?;
        }
        Ok(())
    }

    /// A tool on the node says something of the object.
    async fn status_up(
        &mut self,
        operator: &Operator,
        name: &ObjectName,
        file: &Path,
    ) -> Result<(), Failure> {
        let began = Instant::now();
        let beside = PathBuf::from(format!("{}.status.json", file.display()));
        write(&beside, STATUS)?;
        let node = &name.node;
        let step = format!("what a tool on {node} says of it is known here; both sides are in sync");
        let known = async |_: &mut Board| {
            let view = object::get(operator, name.clone()).await?;
            let sync = operator.all(&SYNC, Some(node.as_str())).await?.pop();
            let state = sync.map_or(SyncState::Other, |sync| sync.condition.state);
            let status = view.status.as_ref().is_some_and(|status| status.get("visitors").is_some());
            Ok(match (status, state) {
                (true, SyncState::InSync) => Ok(view),
                (status, state) => Err(format!("its status is here: {status}; {node} is {state}")),
            })
        };
        let view = self.see(&step, known).await?;
        self.board.done(&step, began.elapsed())?;
        let shown = object::show(&view, Screen::of_process(false));
        self.shown(&format!("muster object get {node} {}/{}", name.kind, name.name), &shown)
    }

    /// An object that somebody puts on an autonomous node comes up.
    pub(super) async fn objects_up(&mut self, operator: &Operator) -> Result<(), Failure> {
        let Some(root) = self.root_of(OBSERVER) else { return Ok(()) };
        let file = root.join(FOLDER).join("trial.yaml");
        self.board.say(&format!("\n    somebody on {OBSERVER} writes /{FOLDER}/trial.yaml"))?;
        let began = Instant::now();
        write(&file, TRIAL)?;
        let step = format!("{OBSERVER} is the source of its own objects: what it has shows here");
        let shows = async |_: &mut Board| {
            let objects = operator.all(&OBJECTS, ObjectsQuery::default()).await?;
            let found = objects.iter().any(|view| view.node.as_str() == OBSERVER && view.name == "trial");
            Ok(if found { Ok(objects) } else { Err(format!("{} objects are known", objects.len())) })
        };
        let objects = self.see(&step, shows).await?;
        self.board.done(&step, began.elapsed())?;
        self.shown("muster object list", &object::list(&objects, Screen::of_process(false)))
    }
}

fn write(file: &Path, text: &str) -> Result<(), DemoError> {
    if let Some(dir) = file.parent() {
        fs::create_dir_all(dir).map_err(DemoError::using(dir))?;
    }
    fs::write(file, text).map_err(DemoError::using(file))
}
