//! Which traits a node's set may read, found in its expressions without evaluating them.

use catalog::module::{CommandLine, DeclaredResource, Module};
use lang::{Expr, InterpolatedText, Template, Value};

use super::Inputs;

/// Whether anything that is bound may read the trait at this path (`["uptime", "seconds"]`), a part
/// of it, or a map that it is in. What does not parse reads nothing: it fails wherever it is bound.
pub fn reads_trait(inputs: &Inputs<'_>, path: &[&str]) -> bool {
    let reads = Reads { path };
    let params = inputs.params;
    let layers = params.conditional.iter();
    let mut vars = params.vars.values().chain(params.host_vars.values());
    vars.any(|value| reads.value(value))
        || layers.into_iter().any(|it| reads.expr(&it.when) || it.vars.values().any(|var| reads.value(var)))
        || inputs.modules.values().any(|module| reads.module(module))
}

struct Reads<'a> {
    path: &'a [&'a str],
}

impl Reads<'_> {
    fn module(&self, module: &Module) -> bool {
        let template = |source: &String| {
            let parsed = Template::parse("", source);
            parsed.is_ok_and(|template| template.uses().iter().any(|name| self.is_meant(&name.path)))
        };
        module.when.as_ref().is_some_and(|when| self.expr(when))
            || module.params.values().any(|decl| decl.default.as_ref().is_some_and(|it| self.value(it)))
            || module.resources.iter().chain(&module.handlers).any(|resource| self.resource(resource))
            || module.verify.as_ref().is_some_and(|verify| self.command(verify))
            || module.templates.values().any(template)
    }

    fn resource(&self, resource: &DeclaredResource) -> bool {
        self.text(&resource.name)
            || resource.when.as_ref().is_some_and(|when| self.expr(when))
            || resource.attributes.values().any(|value| self.value(value))
            || resource.foreach.as_ref().is_some_and(|over| self.value(over))
            || resource.only_if.iter().chain(&resource.not_if).any(|guard| self.command(guard))
    }

    fn command(&self, command: &CommandLine) -> bool {
        match command {
            CommandLine::Shell(text) => self.text(text),
            CommandLine::Argv(argv) => argv.iter().any(|text| self.text(text)),
        }
    }

    fn value(&self, value: &Value) -> bool {
        match value {
            Value::Str(text) => self.text(text),
            Value::List(values) => values.iter().any(|value| self.value(value)),
            Value::Map(values) => values.values().any(|value| self.value(value)),
            _ => false,
        }
    }

    fn text(&self, text: &str) -> bool {
        let exprs = |text: InterpolatedText| text.exprs().any(|(expr, _)| self.names(expr));
        !InterpolatedText::is_literal(text) && InterpolatedText::parse(text).is_ok_and(exprs)
    }

    fn expr(&self, source: &str) -> bool {
        Expr::parse(source).is_ok_and(|expr| self.names(&expr))
    }

    fn names(&self, expr: &Expr) -> bool {
        expr.names().iter().any(|name| self.is_meant(&name.path))
    }

    /// `traits` alone stands for all of them, as in `traits[params.group]`.
    fn is_meant(&self, name: &[String]) -> bool {
        let Some(("traits", below)) = name.split_first().map(|(root, below)| (root.as_str(), below)) else {
            return false;
        };
        below.iter().zip(self.path).all(|(name, part)| name == part)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use catalog::module::Params;

    use super::*;

    fn reads(conditional: &str, template: &str) -> bool {
        let module: Module = serde_json::from_value(serde_json::json!({
            "name": "app", "templates": {"a": template},
        }))
        .unwrap();
        let params: Params = serde_json::from_value(serde_json::json!({
            "node": {"channel": "stable"}, "vars": {"app.text": conditional},
        }))
        .unwrap();
        let modules = BTreeMap::from([("app".to_owned(), Arc::new(module))]);
        let traits = Value::Map(BTreeMap::new());
        let inputs = Inputs { modules: &modules, params: &params, hostname: "h", traits: &traits };
        reads_trait(&inputs, &["uptime", "seconds"])
    }

    #[test]
    fn what_names_the_trait_or_a_map_around_it_reads_it() {
        for text in
            ["${{ traits.uptime.seconds }}", "${{ traits.uptime | default(0) }}", "${{ traits[vars.x] }}"]
        {
            assert!(reads(text, ""), "{text}");
        }
        assert!(reads("", "{{ traits.uptime.seconds }}"));
        for text in
            ["uptime", "the uptime of ${{ traits.os.name }}", "${{ params.uptime }}", "$${{ traits.uptime }}"]
        {
            assert!(!reads(text, "see uptime(1): {{ traits.os.name }}"), "{text}");
        }
    }
}
