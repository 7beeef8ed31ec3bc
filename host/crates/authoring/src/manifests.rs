//! Prints the objects that a cluster needs for a plugin: `innkeeper manifests`.
//!
//! They are the CustomResourceDefinitions, the least-privilege roles and the Plugin resource. The host's own objects
//! are in the Helm chart in `deploy/`. The command never connects to a cluster.

mod access;
mod resource;

use std::collections::{BTreeMap, BTreeSet};

use innkeeper_command::{Exit, Failure, OrFail as _, Output, Streams, by_plugin, runtime};
use innkeeper_crd::Kinds;
use innkeeper_model::{Gvk, LABEL_PLUGIN, Manifest};
use innkeeper_plugin_controller as plugins;
use innkeeper_policy::{Assessment, Grants};
use innkeeper_sandbox::{Described, artifact};
use innkeeper_source::{Expectation, RegistryArtifact};
use serde_json::{Map, Value, json};

use crate::{
    args::{Inspected, ManifestsArgs, PluginAccount},
    plugin_file,
};

/// Prints the manifests.
pub fn run(args: &ManifestsArgs, streams: &mut Streams<'_>) -> Result<Exit, Failure> {
    let loaded = load(args)?;
    let grants = by_plugin(&args.grants);
    let granted = loaded
        .iter()
        .map(|plugin| Granted::new(plugin.described.manifest(), &plugin.source, &grants))
        .collect::<Result<Vec<_>, _>>()?;
    let of_grants = grants.keys().map(|name| ("--grants", name));
    let of_accounts = args
        .accounts
        .iter()
        .map(|account| ("--account", &account.plugin));
    for (flag, plugin) in of_grants.chain(of_accounts) {
        let mut names = granted.iter().map(|plugin| plugin.manifest.name.as_str());
        if !names.any(|name| name == plugin) {
            let message = format!("{flag} names {plugin}, but no plugin of that name is given");
            return Err(Failure::new(Exit::Usage, message));
        }
    }
    let documents = if args.print_grants {
        granted.iter().map(Granted::file).collect()
    } else {
        documents(&granted, args)
    };
    streams.print(&output(&documents)?)?;
    Ok(Exit::Success)
}

/// A described plugin, with a location in `spec.source` form.
struct Loaded {
    described: Described,
    source: Value,
}

fn load(args: &ManifestsArgs) -> Result<Vec<Loaded>, Failure> {
    let cache = args.load.cache.open()?;
    let mut loaded = Vec::with_capacity(args.plugins.len());
    for plugin in &args.plugins {
        loaded.push(load_one(plugin, args, cache.as_ref())?);
    }
    // The output must not depend on the argument order.
    loaded.sort_by(|left, right| {
        let name = |one: &Loaded| one.described.manifest().name.clone();
        name(left).cmp(&name(right))
    });
    let mut names = BTreeSet::new();
    for one in &loaded {
        let name = &one.described.manifest().name;
        if !names.insert(name) {
            let message = format!("two of the plugins are named {name}: give one of them");
            return Err(Failure::new(Exit::Usage, message));
        }
    }
    Ok(loaded)
}

/// Loads a file, or an artifact that the Plugin will name by manifest digest.
fn load_one(
    plugin: &Inspected,
    args: &ManifestsArgs,
    cache: Option<&artifact::Cache>,
) -> Result<Loaded, Failure> {
    let (described, source, name) = match plugin {
        Inspected::File(path) => {
            let described =
                plugin_file::read(path).and_then(|bytes| plugin_file::describe(&bytes, cache));
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            let source = json!({"file": {"path": file}});
            (described, source, path.display().to_string())
        }
        Inspected::Artifact(reference) => {
            let artifact = RegistryArtifact::open(reference, &args.load.registry.settings())?;
            let fetched = runtime::block_on(artifact.fetch(&Expectation::default()))?;
            let mut source =
                json!({"reference": artifact.pinned(fetched.manifest_digest.as_ref())});
            if args.load.registry.insecure {
                source["insecure"] = true.into();
            }
            let described = plugin_file::describe(&fetched.bytes, cache);
            (described, json!({"oci": source}), reference.clone())
        }
    };
    let message = format!("failed to load the plugin {name}");
    let described = described.or_fail_by(plugin_file::Error::exit, message)?;
    Ok(Loaded { described, source })
}

/// A plugin with grants.
struct Granted<'a> {
    manifest: &'a Manifest,
    source: &'a Value,
    grants: Grants,
}

impl<'a> Granted<'a> {
    fn new(
        manifest: &'a Manifest,
        source: &'a Value,
        given: &BTreeMap<String, Map<String, Value>>,
    ) -> Result<Self, Failure> {
        let grants = plugins::grants_of(manifest, given, Grants::proposed)
            .or_fail(Exit::Usage, "failed to parse the grants")?;
        Ok(Self {
            manifest,
            source,
            grants,
        })
    }

    /// Explains the grants in plain words, one line each.
    fn powers(&self) -> impl Iterator<Item = String> {
        let name = &self.manifest.name;
        self.grants
            .powers(self.manifest)
            .into_iter()
            .map(move |power| format!("Plugin {name} {power}."))
    }

    /// The grants as a file for `--grants`.
    fn file(&self) -> Document {
        let Assessment { missing, reduced } = self.grants.assess(self.manifest);
        let denied = missing.into_iter().chain(reduced);
        let name = &self.manifest.name;
        let denied = denied.map(|right| format!("Plugin {name} also asks for {right}."));
        Document {
            comments: self.powers().chain(denied).collect(),
            object: json!(plugins::resource::file_of_grants(&self.grants)),
        }
    }

    /// The declared and granted parent kinds.
    fn parents(&self) -> impl Iterator<Item = &Gvk> {
        self.grants
            .parents_of(self.manifest)
            .map(|parent| &parent.kind)
    }

    /// The declared and granted child kinds.
    fn children(&self) -> impl Iterator<Item = &Gvk> {
        self.manifest
            .children
            .iter()
            .map(|child| &child.kind)
            .filter(|kind| self.grants.allows_child(&kind.group_kind()))
    }

    /// The plugin's definitions by name, with the label by which the host recognizes them.
    fn definitions(&self) -> BTreeMap<String, Value> {
        let mut all = BTreeMap::new();
        for crd in &self.manifest.crds {
            let mut crd = Value::Object(crd.clone());
            let name = crd["metadata"]["name"].as_str().map(str::to_owned);
            // The host's own definition is in its chart.
            if let Some(name) = name.filter(|name| name != plugins::resource::CRD_NAME) {
                if !crd["metadata"]["labels"].is_object() {
                    crd["metadata"]["labels"] = json!({});
                }
                crd["metadata"]["labels"][LABEL_PLUGIN] = self.manifest.name.as_str().into();
                all.insert(name, crd);
            }
        }
        all
    }
}

impl ManifestsArgs {
    /// Returns the account that writes a plugin's children; none: the host's own.
    fn account(&self, plugin: &Granted<'_>) -> Option<&PluginAccount> {
        let name = plugin.manifest.name.as_str();
        let mut accounts = self.accounts.iter();
        accounts
            .find(|account| account.plugin == name)
            .map(|account| &account.value)
    }
}

/// One object with comments before it.
#[derive(Debug, PartialEq)]
struct Document {
    comments: Vec<String>,
    object: Value,
}

/// Returns documents with their comments, and `---` between them.
fn output(documents: &[Document]) -> Result<Output, Failure> {
    let mut output = Output::default();
    for (index, document) in documents.iter().enumerate() {
        if index > 0 {
            output.line("---");
        }
        for comment in &document.comments {
            output.line(format!("# {comment}"));
        }
        output.append(&Output::yaml(std::slice::from_ref(&document.object))?);
    }
    Ok(output)
}

impl From<Value> for Document {
    fn from(object: Value) -> Self {
        Self {
            comments: Vec::new(),
            object,
        }
    }
}

/// Returns all objects in the order in which to apply them.
fn documents(plugins: &[Granted<'_>], args: &ManifestsArgs) -> Vec<Document> {
    let kinds = Kinds::from_manifests(plugins.iter().map(|plugin| plugin.manifest));
    // If two plugins have a definition with the same name, the first plugin's counts, as in the host.
    let mut definitions = BTreeMap::new();
    for plugin in plugins.iter().rev() {
        definitions.extend(plugin.definitions());
    }
    let mut documents: Vec<Document> = definitions.into_values().map(Document::from).collect();
    for plugin in plugins {
        let roles = access::plugin(plugin, &kinds, args);
        documents.extend(roles.into_iter().map(Document::from));
        documents.push(resource::plugin(plugin, args));
    }
    documents
}

#[cfg(test)]
mod tests;
