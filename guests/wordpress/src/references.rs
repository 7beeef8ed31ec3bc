//! The Secrets and ConfigMaps that the spec names, and their hashes.
//!
//! The host shows hashes only; no value ever comes here.

use std::collections::{BTreeMap, BTreeSet};

use innkeeper_sdk::prelude::*;

use crate::site::Site;

/// What the spec names in `env`, `envFrom` and `tlsSecretRef`, and what there is of it.
#[derive(Debug, Default)]
pub(crate) struct References {
    /// Secrets by name; none where one is missing.
    secrets: BTreeMap<String, Option<Hashed>>,
    /// ConfigMaps by name; none where one is missing.
    config_maps: BTreeMap<String, Option<Hashed>>,
    /// Secrets that must exist.
    required_secrets: BTreeSet<String>,
    /// ConfigMaps that must exist.
    required_config_maps: BTreeSet<String>,
    /// Names and keys of Secrets that must exist.
    required_keys: BTreeSet<(String, String)>,
}

impl References {
    pub(crate) fn read(request: &Request, host: &dyn Host, site: &Site<'_>) -> Result<Self, Fault> {
        let mut references = Self::default();
        references.collect(site);
        for (name, found) in &mut references.secrets {
            *found = secret(request, host, name)?;
        }
        for (name, found) in &mut references.config_maps {
            *found = host.hashed_config_map(request.namespace(), name)?;
        }
        if let Some(name) = &site.spec.tls_secret_ref {
            // No pod mounts it, so it is not among those that are hashed.
            references.required_secrets.insert(name.clone());
            if secret(request, host, name)?.is_some() {
                references.required_secrets.remove(name);
            }
        }
        Ok(references)
    }

    fn collect(&mut self, site: &Site<'_>) {
        let sources = site.spec.env.iter().filter_map(|it| it.value_from.as_ref());
        for source in sources {
            if let Some(key) = &source.secret_key_ref {
                let is_required = !key.optional.unwrap_or(false);
                self.add_secret(&key.name, is_required);
                if is_required {
                    let required = (key.name.clone(), key.key.clone());
                    self.required_keys.insert(required);
                }
            }
            if let Some(key) = &source.config_map_key_ref {
                self.add_config_map(&key.name, !key.optional.unwrap_or(false));
            }
        }
        for source in &site.spec.env_from {
            if let Some(secret) = &source.secret_ref {
                self.add_secret(&secret.name, !secret.optional.unwrap_or(false));
            }
            if let Some(map) = &source.config_map_ref {
                self.add_config_map(&map.name, !map.optional.unwrap_or(false));
            }
        }
    }

    fn add_secret(&mut self, name: &str, is_required: bool) {
        self.secrets.insert(name.to_owned(), None);
        if is_required {
            self.required_secrets.insert(name.to_owned());
        }
    }

    fn add_config_map(&mut self, name: &str, is_required: bool) {
        self.config_maps.insert(name.to_owned(), None);
        if is_required {
            self.required_config_maps.insert(name.to_owned());
        }
    }

    /// What was found, for a hash over all of it.
    pub(crate) fn found(&self) -> impl Iterator<Item = &Hashed> {
        self.secrets
            .values()
            .chain(self.config_maps.values())
            .flatten()
    }

    /// Required Secrets that are missing, sorted.
    pub(crate) fn missing_secrets(&self) -> impl Iterator<Item = &str> {
        let missing = self.required_secrets.iter();
        missing
            .filter(|name| !matches!(self.secrets.get(*name), Some(Some(_))))
            .map(String::as_str)
    }

    /// Whether an object that the pods need is missing.
    pub(crate) fn is_incomplete(&self) -> bool {
        let is_missing = |names: &BTreeSet<String>, found: &BTreeMap<String, Option<Hashed>>| {
            names
                .iter()
                .any(|name| found.get(name).is_some_and(Option::is_none))
        };
        is_missing(&self.required_secrets, &self.secrets)
            || is_missing(&self.required_config_maps, &self.config_maps)
    }

    /// The first Secret that lacks a key, with that key.
    pub(crate) fn missing_key(&self) -> Option<(&str, &str)> {
        let lacks = |(name, key): &&(String, String)| match self.secrets.get(name) {
            Some(Some(found)) => !found.has(key),
            _ => false,
        };
        let (name, key) = self.required_keys.iter().find(lacks)?;
        Some((name, key))
    }
}

/// A Secret of the parent's namespace with hashes instead of values: a child, or somebody else's.
pub(crate) fn secret(
    request: &Request,
    host: &dyn Host,
    name: &str,
) -> Result<Option<Hashed>, Fault> {
    match request.children.hashed_secret(name)? {
        Some(observed) => Ok(Some(observed)),
        None => Ok(host.hashed_secret(request.namespace(), name)?),
    }
}
