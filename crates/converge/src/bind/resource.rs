//! One resource: its `when`, its name, its attributes, its template.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use catalog::module::{
    CommandLine, DEFAULT_RETRY_DELAY_SECS, DeclaredResource, MAX_RETRIES, MAX_RETRY_DELAY_SECS, Module,
    OnRemove,
};
use catalog::own_paths;
use catalog::params::{evaluate, is_dynamic};
use catalog::schema::{self, BindContext, FieldKind};
use catalog::types::{CustomSpec, FileContent, Script, Spec};
use lang::{EvalError, InterpolatedText, Template, TemplateRenderError, Value};
use model::collect::CollectInserting;

use super::foreach::LoopBudget;
use super::secrets::{BoundTemplate, CONTENT, forget_secrets, keep_private, whole_secret};
use super::source::{Sources, source};
use super::{BindError, BindMistake, BindPart, BoundResource, GuardKind, ResourceGuard, RetryPolicy};
use crate::condition::{ModuleScope, NOT_HERE};
use crate::{ResourceId, When};

/// Where secrets may stand.
const SECRETS_STAND: &str =
    "it may stand in the content or template of a file, in the params of a custom executor and in stdin";

/// Binds the resources of one module; parses each template once.
pub(super) struct Binder<'a> {
    module: &'a Module,
    pub(super) scope: &'a Arc<ModuleScope>,
    observe: bool,
    templates: BTreeMap<String, Result<BoundTemplate, BindError>>,
    pub(super) budget: &'a mut LoopBudget,
    /// Bytes of the attributes and templates so far. A resource has texts of its own also where they are written
    /// out in its declaration, as each item of a loop has.
    pub(super) made: usize,
    /// Some resource's name could not be evaluated.
    pub(super) unnamed: bool,
    /// The position of the declaration that is bound.
    pub(super) slot: usize,
    sources: Sources,
}

/// A resource's spec with what else binding it came to.
struct BoundSpec {
    spec: Spec,
    /// What the ledger keeps of its attributes.
    kept: BTreeMap<String, Value>,
}

impl<'a> Binder<'a> {
    pub(super) fn new(
        module: &'a Module,
        scope: &'a Arc<ModuleScope>,
        observe: bool,
        budget: &'a mut LoopBudget,
        sources: Sources,
    ) -> Binder<'a> {
        let templates = BTreeMap::new();
        Binder { module, scope, observe, templates, budget, made: 0, unnamed: false, slot: 0, sources }
    }

    /// Binds a resource, or one item of it, with these names.
    pub(super) fn bind(&mut self, resource: &DeclaredResource, scope: &Arc<ModuleScope>) -> BoundResource {
        let kind = schema::find(&resource.kind);
        let canonical =
            |name: String| kind.map_or_else(|| name.clone(), |it| it.canonical_name(&name).into_owned());
        let name = plain_text(&resource.name, scope).map(canonical);
        let holds_secret = self.holds_secret(resource, scope);
        self.unnamed |= name.is_err();
        let when = When::decide(resource.when.as_deref(), scope);
        let mut guards = Vec::new();
        let bound = match (&name, &when) {
            // Not wanted here: its attributes need not make sense here.
            (_, When::Never(_)) => Err(BindError::whole("it is not wanted here")),
            (name, _) => {
                let name = name.as_deref().map_err(Clone::clone);
                let mut wrong = BindError::default();
                let spec = self.spec(resource, name, scope, &mut wrong);
                guards = self::guards(resource, scope, &mut wrong);
                wrong.or(()).and(spec.ok_or_else(|| BindError::whole("it cannot be bound")))
            }
        };
        let (spec, kept) = match bound {
            Ok(BoundSpec { spec, kept }) => (Ok(spec), kept),
            Err(error) => (Err(error), BTreeMap::new()),
        };
        let item = scope.item.as_ref().map(|item| item.key.to_string());
        let name = name.unwrap_or_else(|_| match &item {
            Some(key) => format!("{} (item {key})", resource.name),
            None => resource.name.clone(),
        });
        let default_timeout = kind.map_or(schema::MAX_TIMEOUT_SECS, |kind| kind.timeout_secs);
        BoundResource {
            id: ResourceId::new(&self.module.name, &resource.kind, &name),
            kind: resource.kind.clone(),
            name,
            spec,
            when,
            depends_on: Vec::new(),
            after: Vec::new(),
            notify: Vec::new(),
            notifiers: BTreeMap::new(),
            observe: self.observe || resource.observe,
            on_remove: resource
                .on_remove
                .or(kind.map(|kind| kind.default_on_remove()))
                .unwrap_or(OnRemove::Keep),
            // Where secrets read as `(secret)` there is nothing to hide.
            sensitive: resource.sensitive || holds_secret && !scope.shared.secrets.are_hidden(),
            holds_secret,
            ignore_failure: resource.ignore_failure,
            timeout: Duration::from_secs(resource.timeout.unwrap_or(default_timeout).into()),
            guards,
            retry: retry(resource),
            tags: resource.tags.iter().cloned().collect(),
            item,
            kept,
            source: (self.sources == Sources::Keep).then(|| Box::new(source(resource, self.slot, scope))),
        }
    }

    /// The spec, and the attributes that the ledger keeps; `None` where something is wrong with it, or not
    /// known yet.
    fn spec(
        &mut self,
        resource: &DeclaredResource,
        name: Result<&str, EvalError>,
        scope: &ModuleScope,
        wrong: &mut BindError,
    ) -> Option<BoundSpec> {
        self.refuse_secrets(resource, scope, wrong);
        let name = name.map_err(|error| wrong.add(BindError::of(BindPart::Name, error)));
        let whole = whole_secret(resource, scope);
        let mut attributes = attributes(&resource.attributes, scope, whole.is_some(), wrong);
        if let Some((name, _)) = &whole {
            let text =
                scope.shared.secrets.bytes(name).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
            attributes.to_mut().insert(CONTENT.to_owned(), Value::Str(text.unwrap_or_default()));
        }
        self.made += attributes.values().map(size).sum::<usize>();
        let rendered = match attributes.get("template").and_then(Value::as_str) {
            Some(template) if has_template(&resource.kind) && !is_dynamic(&attributes["template"]) => {
                self.render(template, scope).map_err(|error| wrong.add(error)).ok()
            }
            _ => None,
        };
        if !wrong.is_empty() {
            self.check(resource, &attributes, wrong);
            return None;
        }
        let context = BindContext { files: &self.module.files, rendered };
        let bound = schema::bind(&resource.kind, name.ok()?, &attributes, &context);
        let mut spec = bound.map_err(|message| wrong.add(BindError::whole(message))).ok()?;
        if let (Some((_, Some(bytes))), Spec::File(file)) = (&whole, &mut spec) {
            file.content = Some(FileContent::bytes(bytes.as_slice()));
        }
        if self.holds_secret(resource, scope) {
            keep_private(&mut spec, wrong);
        }
        if let Some(refusal) = own_paths::refusal(&spec, &scope.shared.own_paths) {
            wrong.add(BindError::whole(refusal));
        }
        let mut kept = kept(&resource.kind, &attributes, &spec);
        forget_secrets(&mut kept, &resource.attributes, scope);
        Some(BoundSpec { spec, kept })
    }

    /// Whether an attribute of the resource, or its template, is made of a secret.
    fn holds_secret(&mut self, resource: &DeclaredResource, scope: &ModuleScope) -> bool {
        if resource.attributes.values().any(|value| scope.value_holds_secret(value)) {
            return true;
        }
        let template = resource.attributes.get("template").and_then(Value::as_str);
        let template = template.filter(|_| has_template(&resource.kind)).map(|name| self.template(name));
        matches!(template, Some(Ok(template)) if template.holds_secret(scope))
    }

    /// Refuses a secret in an attribute that does not take one: it would be seen on the host, in a report or in the
    /// ledger (SEC-3).
    fn refuse_secrets(&mut self, resource: &DeclaredResource, scope: &ModuleScope, wrong: &mut BindError) {
        let takes = |name: &str| {
            let attribute = schema::find(&resource.kind).and_then(|kind| kind.attribute(name));
            attribute.is_some_and(|attribute| attribute.takes_secret)
        };
        let mut refuse = |part: BindPart| {
            let message = format!("{NOT_HERE}: `{}` takes none there; {SECRETS_STAND}", resource.kind);
            wrong.mistakes.push(BindMistake { part, message, place: None });
        };
        for (name, value) in &resource.attributes {
            if !takes(name) && scope.value_holds_secret(value) {
                refuse(BindPart::Attribute(name.clone()));
            }
        }
        let template = resource.attributes.get("template").and_then(Value::as_str);
        if let Some(name) = template.filter(|_| has_template(&resource.kind) && !takes("template"))
            && matches!(self.template(name), Ok(template) if template.holds_secret(scope))
        {
            refuse(BindPart::Template(name.to_owned()));
        }
    }

    /// Where only what is not observed keeps it from being bound, what is known of it is read all the same.
    fn check(
        &self,
        resource: &DeclaredResource,
        attributes: &BTreeMap<String, Value>,
        wrong: &mut BindError,
    ) {
        let Some(kind) = schema::find(&resource.kind).filter(|_| wrong.mistakes.is_empty()) else { return };
        for problem in schema::check(kind, &resource.name, attributes, true) {
            let part = problem.attribute.map_or(BindPart::Whole, BindPart::Attribute);
            wrong.mistakes.push(BindMistake { part, message: problem.message, place: None });
        }
    }

    /// A template of the module, parsed once.
    fn template(&mut self, name: &str) -> Result<&BoundTemplate, BindError> {
        let missing = || BindError::whole(format!("templates/{name} is not in the module"));
        if !self.templates.contains_key(name) {
            let parsed = match self.module.templates.get(name) {
                Some(source) => Template::parse(&format!("templates/{name}"), source)
                    .map(|template| BoundTemplate::of(template, self.scope))
                    .map_err(|error| BindError::of_template(name, &error)),
                None => Err(missing()),
            };
            self.templates.insert(name.to_owned(), parsed);
        }
        match self.templates.get(name) {
            Some(Ok(template)) => Ok(template),
            Some(Err(error)) => Err(error.clone()),
            None => Err(missing()),
        }
    }

    fn render(&mut self, name: &str, scope: &ModuleScope) -> Result<String, BindError> {
        let template = self.template(name)?.template.clone();
        let text = template.render(&scope.names()).map_err(|error| match error {
            TemplateRenderError::Failed(error) => BindError::of_template(name, &error),
            TemplateRenderError::Unobserved(observed) => {
                BindError::of(BindPart::Template(name.to_owned()), EvalError::Unobserved(observed))
            }
        })?;
        self.made += text.len();
        Ok(text)
    }
}

/// A resource of this type may have its content from a template.
fn has_template(kind: &str) -> bool {
    let template = schema::find(kind).and_then(|kind| kind.attribute("template"));
    template.is_some_and(|attribute| attribute.kind == FieldKind::Template)
}

/// Evaluates what holds expressions; the common case of none copies nothing. What is wrong, or not known
/// yet, stands as it is declared.
fn attributes<'b>(
    declared: &'b BTreeMap<String, Value>,
    scope: &ModuleScope,
    content_is_known: bool,
    wrong: &mut BindError,
) -> Cow<'b, BTreeMap<String, Value>> {
    if !declared.values().any(is_dynamic) {
        return Cow::Borrowed(declared);
    }
    let names = scope.names();
    let evaluated = declared.iter().map(|(name, value)| {
        let evaluated = match is_dynamic(value) && !(content_is_known && name == CONTENT) {
            true => evaluate(value, &names).unwrap_or_else(|error| {
                wrong.add(BindError::of(BindPart::Attribute(name.clone()), error));
                value.clone()
            }),
            false => value.clone(),
        };
        (name.clone(), evaluated)
    });
    Cow::Owned(evaluated.collect_inserting())
}

/// Roughly the bytes that a value takes.
pub(super) fn size(value: &Value) -> usize {
    /// The fixed cost of a value.
    const ITEM: usize = 32;
    ITEM + match value {
        Value::Bool(_) | Value::Int(_) => 0,
        Value::Str(text) => text.len(),
        Value::List(items) => items.iter().map(size).sum(),
        Value::Map(map) => map.iter().map(|(key, value)| key.len() + size(value)).sum(),
    }
}

fn guards(resource: &DeclaredResource, scope: &ModuleScope, wrong: &mut BindError) -> Vec<ResourceGuard> {
    let declared = [(GuardKind::OnlyIf, &resource.only_if), (GuardKind::NotIf, &resource.not_if)];
    let given = declared.into_iter().filter_map(|(kind, guard)| Some((kind, guard.as_ref()?)));
    let bound = given.filter_map(|(kind, guard)| match command(guard, scope) {
        Ok(command) => Some(ResourceGuard { kind, command }),
        Err(error) => {
            wrong.add(BindError::of(BindPart::Guard(kind), error));
            None
        }
    });
    bound.collect()
}

fn retry(resource: &DeclaredResource) -> RetryPolicy {
    let delay = resource.retry_delay.unwrap_or(DEFAULT_RETRY_DELAY_SECS);
    RetryPolicy {
        // Whoever made the release, the bounds hold.
        retries: resource.retries.unwrap_or(0).min(MAX_RETRIES),
        delay: Duration::from_secs(delay.min(MAX_RETRY_DELAY_SECS).into()),
    }
}

/// The attributes by which a resource of this type can be removed without its declaration.
fn kept(kind: &str, attributes: &BTreeMap<String, Value>, spec: &Spec) -> BTreeMap<String, Value> {
    let names = schema::find(kind).map_or(&[][..], |kind| kind.removal);
    let given = names.iter().filter_map(|name| Some(((*name).to_owned(), attributes.get(*name)?.clone())));
    let mut kept: BTreeMap<String, Value> = given.collect_inserting();
    // A script of the module is found by its digest when the module is gone.
    if let Spec::Custom(CustomSpec { script: Script::Shipped { digest, .. }, .. }) = spec {
        kept.insert("sha256".to_owned(), Value::from(digest.to_string().as_str()));
    }
    // The files of a tree go when the tree goes, and are put back as their owners are declared.
    if let Spec::Tree(tree) = spec {
        let paths = tree.files.keys().map(|path| Value::from(path.as_str())).collect();
        kept.insert("tree".to_owned(), Value::List(paths));
        let more = ["source", "owner", "group"];
        kept.extend(
            more.iter().filter_map(|name| Some(((*name).to_owned(), attributes.get(*name)?.clone()))),
        );
    }
    kept
}

/// Whether a command is made of a secret.
pub(super) fn command_holds_secret(command: &CommandLine, scope: &ModuleScope) -> bool {
    match command {
        CommandLine::Shell(text) => scope.text_holds_secret(text),
        CommandLine::Argv(argv) => argv.iter().any(|arg| scope.text_holds_secret(arg)),
    }
}

/// Evaluates the `${{ }}` of a command, which is no secret: everybody on the host sees its arguments.
pub(super) fn command(command: &CommandLine, scope: &ModuleScope) -> Result<CommandLine, EvalError> {
    if command_holds_secret(command, scope) {
        let message = format!("{NOT_HERE}: everybody on the host sees the arguments of a command");
        return Err(EvalError::Failed { message, offset: 0, len: 0 });
    }
    match command {
        CommandLine::Shell(text) => evaluated_text(text, scope).map(CommandLine::Shell),
        CommandLine::Argv(argv) => {
            argv.iter().map(|arg| evaluated_text(arg, scope)).collect::<Result<_, _>>().map(CommandLine::Argv)
        }
    }
}

/// Evaluates a text that must not be made of a secret.
fn plain_text(text: &str, scope: &ModuleScope) -> Result<String, EvalError> {
    if scope.text_holds_secret(text) {
        let message = format!("{NOT_HERE}: reports, logs and the ledger have it; {SECRETS_STAND}");
        return Err(EvalError::Failed { message, offset: 0, len: text.len() });
    }
    evaluated_text(text, scope)
}

fn evaluated_text(text: &str, scope: &ModuleScope) -> Result<String, EvalError> {
    if InterpolatedText::is_literal(text) {
        return Ok(text.to_owned());
    }
    match evaluate(&Value::from(text), &scope.names())? {
        value @ (Value::Str(_) | Value::Int(_) | Value::Bool(_)) => Ok(value.to_string()),
        other => Err(EvalError::Failed {
            message: format!("a text is needed, and this is a {}", other.type_name()),
            offset: 0,
            len: text.len(),
        }),
    }
}
