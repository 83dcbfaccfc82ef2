//! One resource: its `when`, its name, its attributes, its template.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use catalog::module::{CommandLine, DeclaredResource, Module, OnRemove};
use catalog::params::{evaluate, is_dynamic};
use catalog::schema::{self, BindContext, FieldKind};
use catalog::types::{CustomSpec, Script, Spec};
use lang::{InterpolatedText, Template, Value};

use super::BoundResource;
use crate::condition::ModuleScope;
use crate::{ResourceId, When};

/// Binds the resources of one module; parses each template once.
pub(super) struct Binder<'a> {
    module: &'a Module,
    scope: &'a Arc<ModuleScope>,
    observe: bool,
    templates: BTreeMap<String, Result<Template, String>>,
    /// Some resource's name could not be evaluated.
    pub(super) unnamed: bool,
}

impl<'a> Binder<'a> {
    pub(super) fn new(module: &'a Module, scope: &'a Arc<ModuleScope>, observe: bool) -> Binder<'a> {
        Binder { module, scope, observe, templates: BTreeMap::new(), unnamed: false }
    }

    pub(super) fn bind(&mut self, resource: &DeclaredResource) -> BoundResource {
        let kind = schema::find(&resource.kind);
        let name = self.text(&resource.name);
        self.unnamed |= name.is_err();
        let when = When::decide(resource.when.as_deref(), self.scope);
        let bound = match (&name, &when) {
            (Err(error), _) => Err(format!("name: {error}")),
            // Not wanted here: its attributes need not make sense here.
            (_, When::Never(_)) => Err("it is not wanted here".into()),
            (Ok(name), _) => self.spec(resource, name),
        };
        let (spec, kept) = match bound {
            Ok((spec, kept)) => (Ok(spec), kept),
            Err(error) => (Err(error), BTreeMap::new()),
        };
        let name = name.unwrap_or_else(|_| resource.name.clone());
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
            sensitive: resource.sensitive,
            ignore_failure: resource.ignore_failure,
            timeout: Duration::from_secs(resource.timeout.unwrap_or(default_timeout).into()),
            kept,
        }
    }

    /// The spec, and the attributes that the ledger keeps.
    fn spec(
        &mut self,
        resource: &DeclaredResource,
        name: &str,
    ) -> Result<(Spec, BTreeMap<String, Value>), String> {
        let attributes = self.attributes(&resource.attributes)?;
        let rendered = match attributes.get("template").and_then(Value::as_str) {
            Some(template) if has_template(&resource.kind) => Some(self.render(template)?),
            _ => None,
        };
        let context = BindContext { files: &self.module.files, rendered };
        let spec = schema::bind(&resource.kind, name, &attributes, &context)?;
        let kept = kept(&resource.kind, &attributes, &spec);
        Ok((spec, kept))
    }

    /// Evaluates what holds expressions; the common case of none copies nothing.
    fn attributes<'b>(
        &self,
        declared: &'b BTreeMap<String, Value>,
    ) -> Result<Cow<'b, BTreeMap<String, Value>>, String> {
        if !declared.values().any(is_dynamic) {
            return Ok(Cow::Borrowed(declared));
        }
        let evaluated = declared.iter().map(|(name, value)| match is_dynamic(value) {
            true => Ok((
                name.clone(),
                evaluate(value, &self.scope.names()).map_err(|error| format!("{name}: {error}"))?,
            )),
            false => Ok((name.clone(), value.clone())),
        });
        evaluated.collect::<Result<_, String>>().map(Cow::Owned)
    }

    fn render(&mut self, name: &str) -> Result<String, String> {
        if !self.templates.contains_key(name) {
            let parsed = match self.module.templates.get(name) {
                Some(source) => {
                    Template::parse(&format!("templates/{name}"), source).map_err(|error| error.to_string())
                }
                None => Err(format!("templates/{name} is not in the module")),
            };
            self.templates.insert(name.to_owned(), parsed);
        }
        match self.templates.get(name) {
            Some(Ok(template)) => template.render(&self.scope.roots()).map_err(|error| error.to_string()),
            Some(Err(error)) => Err(error.clone()),
            None => Err(format!("templates/{name} is not in the module")),
        }
    }

    fn text(&self, text: &str) -> Result<String, String> {
        evaluated_text(text, self.scope)
    }
}

/// A resource of this type may have its content from a template.
fn has_template(kind: &str) -> bool {
    let template = schema::find(kind).and_then(|kind| kind.attribute("template"));
    template.is_some_and(|attribute| attribute.kind == FieldKind::Template)
}

/// The attributes by which a resource of this type can be removed without its declaration.
fn kept(kind: &str, attributes: &BTreeMap<String, Value>, spec: &Spec) -> BTreeMap<String, Value> {
    let names = schema::find(kind).map_or(&[][..], |kind| kind.removal);
    let given = names.iter().filter_map(|name| Some(((*name).to_owned(), attributes.get(*name)?.clone())));
    let mut kept: BTreeMap<String, Value> = given.collect();
    // A script of the module is found by its digest when the module is gone.
    if let Spec::Custom(CustomSpec { script: Script::Shipped { digest, .. }, .. }) = spec {
        kept.insert("sha256".to_owned(), Value::from(digest.to_string().as_str()));
    }
    kept
}

/// Evaluates the `${{ }}` of a command.
pub(super) fn command(command: &CommandLine, scope: &ModuleScope) -> Result<CommandLine, String> {
    match command {
        CommandLine::Shell(text) => evaluated_text(text, scope).map(CommandLine::Shell),
        CommandLine::Argv(argv) => {
            argv.iter().map(|arg| evaluated_text(arg, scope)).collect::<Result<_, _>>().map(CommandLine::Argv)
        }
    }
}

fn evaluated_text(text: &str, scope: &ModuleScope) -> Result<String, String> {
    if InterpolatedText::is_literal(text) {
        return Ok(text.to_owned());
    }
    match evaluate(&Value::from(text), &scope.names())? {
        value @ (Value::Str(_) | Value::Int(_) | Value::Bool(_)) => Ok(value.to_string()),
        other => Err(format!("a text is needed, and this is a {}", other.type_name())),
    }
}
