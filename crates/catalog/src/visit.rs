//! One walk over the expressions of a declaration, none of which is evaluated: for whoever asks what they read or which
//! secrets they name (CFG-9, SEC-1). What does not parse reads nothing: it fails wherever it is bound.

use lang::{Expr, InterpolatedText, Template, Value};

use crate::module::{CommandLine, DeclaredResource, Module};

/// What sees expressions. Where one stands is told by the methods that a visitor overrides: each provided one goes on to
/// what is below it.
pub trait ExpressionVisitor {
    /// An expression, of a condition or in a text.
    fn expr(&mut self, expr: &Expr);

    /// A template of a module.
    fn template(&mut self, template: &Template);

    /// An attribute of a resource.
    fn attribute(&mut self, _resource: &DeclaredResource, _name: &str, value: &Value) {
        self.value(value);
    }

    /// What a param is where nothing sets it.
    fn default_of(&mut self, _param: &str, value: &Value) {
        self.value(value);
    }

    /// Everything of a module, its templates included.
    fn module(&mut self, module: &Module) {
        module.when.iter().for_each(|when| self.condition(when));
        for (name, decl) in &module.params {
            decl.default.iter().for_each(|value| self.default_of(name, value));
        }
        module.resources.iter().chain(&module.handlers).for_each(|resource| self.resource(resource));
        module.verify.iter().for_each(|verify| self.command(verify));
        module.templates.values().for_each(|source| self.template_source(source));
    }

    /// Everything of a resource but the template that it names.
    fn resource(&mut self, resource: &DeclaredResource) {
        self.text(&resource.name);
        resource.when.iter().for_each(|when| self.condition(when));
        resource.attributes.iter().for_each(|(name, value)| self.attribute(resource, name, value));
        resource.foreach.iter().for_each(|over| self.value(over));
        resource.only_if.iter().chain(&resource.not_if).for_each(|guard| self.command(guard));
    }

    /// A template's text.
    fn template_source(&mut self, source: &str) {
        if let Ok(template) = Template::parse("", source) {
            self.template(&template);
        }
    }

    /// A command's words.
    fn command(&mut self, command: &CommandLine) {
        match command {
            CommandLine::Shell(text) => self.text(text),
            CommandLine::Argv(argv) => argv.iter().for_each(|text| self.text(text)),
        }
    }

    /// The texts in a value.
    fn value(&mut self, value: &Value) {
        match value {
            Value::Str(text) => self.text(text),
            Value::List(items) => items.iter().for_each(|item| self.value(item)),
            Value::Map(map) => map.values().for_each(|item| self.value(item)),
            Value::Bool(_) | Value::Int(_) => {}
        }
    }

    /// A text with expressions in it.
    fn text(&mut self, text: &str) {
        if InterpolatedText::is_literal(text) {
            return;
        }
        if let Ok(text) = InterpolatedText::parse(text) {
            text.exprs().for_each(|(expr, _)| self.expr(expr));
        }
    }

    /// A text that is an expression.
    fn condition(&mut self, source: &str) {
        if let Ok(expr) = Expr::parse(source) {
            self.expr(&expr);
        }
    }
}
